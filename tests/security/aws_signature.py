"""Verifies AWS's signatures, version 4, in the query of an address.

Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

import base64
import hashlib
import hmac
from urllib.parse import parse_qsl, quote, urlsplit

# The example of AWS's documentation.
ACCESS_KEY, SECRET_KEY = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
_SERVICE = "kafka-cluster"


def require_valid_signature(token: str, region: str) -> None:
    """Fail unless a token is a request to connect to a cluster of the region that `SECRET_KEY` has signed."""
    address = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    query = dict(parse_qsl(address.query, strict_parsing=True))
    assert address.hostname == f"kafka.{region}.amazonaws.com"
    assert query["Action"] == "kafka-cluster:Connect"
    day = query["X-Amz-Date"][:8]
    scope = f"{day}/{region}/{_SERVICE}/aws4_request"
    assert query["X-Amz-Credential"] == f"{ACCESS_KEY}/{scope}"
    assert query["X-Amz-SignedHeaders"] == "host"
    # The client's name is added after the signature.
    signed = {name: value for name, value in query.items() if name not in ("X-Amz-Signature", "User-Agent")}
    text = "&".join(f"{quote(name, safe='-_.~')}={quote(signed[name], safe='-_.~')}" for name in sorted(signed))
    nothing = hashlib.sha256(b"").hexdigest()
    request = f"GET\n/\n{text}\nhost:{address.hostname}\n\nhost\n{nothing}"
    to_sign = f"AWS4-HMAC-SHA256\n{query['X-Amz-Date']}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{SECRET_KEY}".encode()
    for part in (day, region, _SERVICE, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    assert query["X-Amz-Signature"] == hmac.digest(key, to_sign.encode(), "sha256").hex()
