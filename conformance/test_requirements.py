"""What ``pytest --pyargs allranks.conformance --allranks-backend ...`` runs: a test for each requirement and family.

There is no function here: `allranks.conformance.pytest_plugin` makes the tests when pytest comes to this file.
"""
