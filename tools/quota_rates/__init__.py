"""Whether clients of other projects have the rates that their quotas permit."""
