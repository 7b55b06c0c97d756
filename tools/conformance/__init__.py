"""The judgement of strangers: test suites that know nothing of Runnel."""
