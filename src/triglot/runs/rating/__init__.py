"""`triglot rate`: plays the policies of runs against each other, and rates them."""
