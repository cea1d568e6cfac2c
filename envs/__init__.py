"""The environment suites, one module each: `make(name, **options)` and `names()`.

On the command line and in reports an environment's name is `suite:name`, such as
`gymnax:CartPole-v1`; `make` takes the part after the colon. What several suites need is in
`adapting`.
"""
