"""Generated auctions."""
