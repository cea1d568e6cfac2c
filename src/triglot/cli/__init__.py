"""The command line: parsing, help, completion, and the commands that need no room of their own."""
