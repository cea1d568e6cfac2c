"""Examples, which stand at the end of each command's help."""

EXAMPLES = """
triglot train ppo gymnax:CartPole-v1 --backend haiku --num-seeds 10 --out runs/haiku
triglot train dqn gymnax:CartPole-v1 --eval-every 20000 --stop-at 475 --log tensorboard
triglot train my_file:MyAgent my_file:MyEnvironment --network my_file:my_network
triglot resume runs/first
triglot resume runs/first --backend nnx
triglot resume runs/first --total-steps 1000000 --learning-rate 1e-4
triglot evaluate runs/first
triglot evaluate runs/first --checkpoint best --sampled --episodes 1000 --seed 1
triglot render runs/first
triglot render runs/first --episodes 3 --seed-index 1 --sampled --out three.gif
triglot export runs/first --format stablehlo --out policy
triglot export runs/first --format onnx --out policy-onnx
triglot export runs/first --format nnx --seed-index 1 --out model
triglot runs
triglot runs runs --where algorithm=ppo learning_rate=0.001 --sort return
triglot watch runs/first
triglot watch runs/first --metric loss
triglot curves runs/haiku runs/equinox --out curves.png
triglot curves runs/* --metric eval_return --labels small large
triglot rate runs/first
triglot rate runs/first runs/second --games 1000
triglot compare ppo gymnax:CartPole-v1 --backends haiku linen nnx equinox --num-seeds 4
triglot compare ppo gymnax:CartPole-v1 --arithmetic native --ladder
triglot compare ppo gymnax:CartPole-v1 --against comparison.json --fail-on different
triglot sweep ppo gymnax:CartPole-v1 --over learning_rate=1e-4,3e-4,1e-3 --num-seeds 10
triglot sweep ppo gymnax:CartPole-v1 --over hidden_sizes=64/64,256/256 --over num_envs=4,16
triglot sweep dqn gymnax:CartPole-v1 --over tau=0.01..1 --num-settings 32 --halving
triglot diff my_haiku:net my_equinox:net --env gymnax:CartPole-v1
triglot diff my_linen:cnn my_nnx:CNN --obs-shape 84 84 4 --json diff.json --watch
triglot diff my_haiku:net my_equinox:net --obs-shape 4 --mapping mlp/linear_0=layers/0
triglot translate resnet.safetensors --from torch --network my_linen:net --obs-shape 32 32 3
triglot translate mlp.npz --source my_haiku:net --network my_nnx:Net --obs-shape 4 --out mlp.msgpack
triglot check my_file:my_network --env gymnax:CartPole-v1
triglot check my_file:MyAgent --backends haiku linen nnx equinox
triglot check actor=my_file:my_actor --algorithm sac --env gymnax:Pendulum-v1
triglot new algorithm my_agent
triglot new algorithm my_dqn --like dqn
triglot new network my_network --backend equinox
triglot list
triglot list presets
triglot completion bash > triglot.bash
triglot completion zsh > _triglot
triglot version
"""


def examples_of(command: str) -> list[str]:
    """List the examples of a command.

    >>> examples_of("version")
    ['triglot version']
    """
    return [line for line in EXAMPLES.split("\n") if line.split()[1:2] == [command]]
