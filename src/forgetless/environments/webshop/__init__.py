"""WebShop: buying what an instruction asks for (Yao et al., 2022)."""
