"""The systems that the paper compares with, and simple forecasters."""
