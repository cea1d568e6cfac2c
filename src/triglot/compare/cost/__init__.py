"""What each network library costs, stage by stage: from its import to a call of its policy."""
