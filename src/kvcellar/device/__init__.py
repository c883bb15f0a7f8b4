"""Copies between a device cache and host memory."""
