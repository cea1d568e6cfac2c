"""What the algorithms of one family share: one class between `AgentBase` and an algorithm."""
