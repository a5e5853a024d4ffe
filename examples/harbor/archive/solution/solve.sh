#!/bin/sh
grep -oh 'K[0-9]-[0-9]*' /app/pages/*.txt > /app/answer.txt
