"""What Moldau needs of the outside, as protocols. Real ones are in ``adapters``, fakes in ``testing``; one contract suite runs on both."""
