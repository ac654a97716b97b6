"""The softmax bandit of `groupwise-lab simulate bandit`, sampled or in expectation: no
estimator, no law and no fit is imported.
"""
