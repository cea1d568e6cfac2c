"""What the algorithms of one family share: one class each, between `AgentBase` and an algorithm."""
