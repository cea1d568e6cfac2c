"""Networks: descriptions, heads, combinators, and recurrent unrolling."""
