"""The public testing API: each oracle accepts what is right and catches planted faults."""
