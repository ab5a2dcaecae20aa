"""Requests over HTTP past the proxies of the environment: to this host, or to servers of the user's own network."""

import urllib.request

# Its `open` is that of urllib.request.urlopen, and may be called by several threads.
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
