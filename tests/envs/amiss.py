"""Checks that environments of the libraries fail, by name."""

# Keys: Craftax draws trees and splits from one; Playground's CartPole draws positions and
# velocities from one, its finger joints and the spinner; Navix draws positions, directions and
# colours from one; jumanji's FlatPack shuffles its blocks with the key of their first rotation,
# PacMan splits the key of its state twice, and `jax.debug_key_reuse` refuses MMST's `reset`, too.
REUSES = (
    *(f"DoorKey-Random-{size}" for size in ("5x5", "6x6", "8x8", "16x16")),
    *(f"KeyCorridor{size}" for size in ("S3R1", "S3R2", "S3R3", "S4R3", "S5R3", "S6R3")),
    *(f"SimpleCrossing{size}" for size in ("S9N1", "S9N2", "S9N3", "S11N5")),
    *(f"GoToDoor-{size}" for size in ("5x5", "6x6", "8x8")),
    "FourRooms",
)
AMISS = {
    **{f"navix:Navix-{name}-v0": {"keys used once"} for name in REUSES},
    "jumanji:FlatPack-v0": {"keys used once"},
    "jumanji:MMST-v0": {"keys used once"},
    "jumanji:PacMan-v1": {"keys used once"},
    # A deal may be won at once: the episode then ends at its first step, with nothing.
    "pgx:sparrow_mahjong": {"clean start"},
    # Solvers stop before they have converged, so other rounding gives other accelerations.
    "brax:humanoidstandup": {"jit"},
    **{
        f"playground:{name}": {"jit", "vmap"}
        for name in ("CheetahRun", "HumanoidStand", "HumanoidWalk", "HumanoidRun")
    },
    **{f"playground:Finger{task}": {"keys used once"} for task in ("Spin", "TurnEasy", "TurnHard")},
    "craftax:Craftax-Classic-Symbolic-v1": {"keys used once"},
    "craftax:Craftax-Symbolic-v1": {"keys used once"},
    "craftax:Craftax-Classic-Pixels-v1": {"keys used once"},
    "craftax:Craftax-Pixels-v1": {"keys used once"},
    **{
        f"playground:Cartpole{task}": {"keys used once"}
        for task in ("Balance", "BalanceSparse", "Swingup", "SwingupSparse")
    },
}
