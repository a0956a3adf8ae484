from bench.core import main

main()
