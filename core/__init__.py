"""The protocols of triglot and what is built on them alone; imports no NN or environment library."""
