"""A second language: the scripts' contract kept by a program in Node, written from scripts/README.md alone."""
