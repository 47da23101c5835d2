"""Policy: evidence × exemptions × approvals → findings; and a static scan.

In: journals that test runs left, `exemptions.toml`, a git range with its reviews, source trees. Out: findings,
a coverage matrix, JSON, SARIF. Called by the pytest plugin and by `karat policy`.
"""
