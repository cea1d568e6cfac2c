"""`triglot sweep`: train many settings of one algorithm, and rank them."""
