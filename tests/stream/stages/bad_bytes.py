"""Bytes that are not UTF-8 (RFC 3629), some of which lenient decoders read."""

# Overlong forms of "/", NUL, DEL, d and others, halves of a surrogate pair, what is beyond U+10FFFF, and parts of
# characters.
NOT_UTF_8 = [
    b"\xc0\xaf", b"\xc0\x80", b"\xc1\xbf", b"\xc1\xa4", b"\xe0\x80\xaf", b"\xe0\x9f\xbf", b"\xf0\x80\x80\xaf",
    b"\xf0\x8f\xbf\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xff", b"\x80",
    b"\xe2\x82", b"\xf0\x9f\x98",
]  # fmt: skip
# The first and the last characters of each length.
UTF_8 = "\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff"
