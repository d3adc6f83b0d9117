"""What several test rooms share: starting a real server, finding a Java tool, building batches."""
