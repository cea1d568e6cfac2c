"""The text of `triglot --help`."""

USAGE = """\
usage: triglot [-h] [--version] COMMAND ...

Reinforcement learning in JAX: one agent, any network library.

commands:
  train      train an agent with one network library
  resume     continue an interrupted training
  evaluate   play whole episodes with a trained agent
  render     render episodes of a trained agent
  export     write the weights or the policy for use without triglot
  runs       list runs with their state and return
  watch      show a run in the terminal while another program trains it
  curves     plot the learning curves of several runs
  rate       play the checkpoints of runs against each other, and rate them (Elo)
  compare    train with several network libraries from the same weights, and report differences
  sweep      train many settings of an algorithm, and rank them
  diff       compare two networks with the same weights: where they differ, and why
  translate  convert a checkpoint of one library into another library's network
  check      check a custom or built-in component before training
  new        create a custom component from a template
  list       list algorithms, backends, environments and presets, and what is installed
  completion write the script by which a shell completes options
  version    show the versions of triglot and its libraries

examples:
  triglot train ppo gymnax:CartPole-v1 --backend equinox --num-seeds 4 --out runs/first
  triglot train ppo gymnax:CartPole-v1 --learning-rate 1e-3 --num-envs 16 --optimizer lion
  triglot resume runs/first
  triglot evaluate runs/first
  triglot export runs/first --format stablehlo --out policy
  triglot compare ppo gymnax:CartPole-v1 --backends haiku equinox --total-steps 100000
  triglot sweep ppo gymnax:CartPole-v1 --over learning_rate=1e-4,3e-4,1e-3 --num-seeds 10
  triglot diff my_haiku:net my_equinox:net --env gymnax:CartPole-v1
  triglot new algorithm my_agent
  triglot check my_file:MyAgent --env gymnax:CartPole-v1
  triglot list gymnax

`triglot COMMAND --help` explains a command; `triglot train ppo --help` includes PPO's options.
"""
