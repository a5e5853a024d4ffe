#!/bin/sh
if [ "$(cat /app/answer.txt)" = K7-4821 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
