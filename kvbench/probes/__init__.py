"""What kvbench can measure: the table of probes, and what each takes, yields and costs."""
