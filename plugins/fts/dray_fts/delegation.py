"""The calls about the caller, and about the delegation of certificates.

The service has its own credentials for endpoints, so it needs no delegated proxy. Clients of FTS
delegate one before each submission. The service checks the proxy, stores the time at which the
proxy expires, and drops the proxy. The service makes a new private key for each request for a
proxy, and drops this key at once.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from starlette.responses import JSONResponse, PlainTextResponse, Response

from dray_fts.jobs import BASE_ID
from dray_fts.people import Person, RefusedError
from dray_fts.shapes import time_text
from dray_fts.tls import CHAIN, owner_of, subject_of

if TYPE_CHECKING:
    from cryptography.x509 import Certificate
    from starlette.requests import Request

    from dray_fts.service import Service

__all__ = ["certificate", "forget", "put", "request_of", "termination", "whoami"]

_KEY_BITS = 2048
_CHAIN_MAX = 16


def whoami(service: Service, person: Person, request: Request, body: bytes) -> Response:
    """``GET /whoami``: the caller."""
    del service, request, body
    level = "all" if person.is_administrator else "private"
    return JSONResponse(
        {
            "user_dn": person.dn,
            "dn": [person.dn],
            "method": "certificate" if person.token is None else "oauth2",
            "delegation_id": person.delegation_id,
            "base_id": str(BASE_ID),
            "vos": [person.vo],
            "vos_id": [],
            "voms_cred": [],
            "roles": [],
            "level": dict.fromkeys(("transfer", "deleg"), level),
            "is_root": person.is_administrator,
        }
    )


def certificate(service: Service, person: Person, request: Request, body: bytes) -> Response:
    """``GET /whoami/certificate``: the certificates that the caller has shown."""
    del service, person, body
    chain: list[Certificate] = request.scope.get(CHAIN) or []
    if not chain:
        raise RefusedError(404, "the caller has sent a token and no certificate")
    pem = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in chain)
    return PlainTextResponse(pem)


def termination(service: Service, person: Person, request: Request, body: bytes) -> Response:
    """``GET /delegation/ID``: the end of the delegation, or null."""
    del body
    _check(person, request)
    if person.token_until is not None:
        # A client with a token looks for a delegation too, and cannot make one.
        return JSONResponse({"termination_time": time_text(person.token_until)})
    row = service.database.delegation(person.delegation_id)
    if row is None or row["termination_time"] is None:
        return JSONResponse(None)
    return JSONResponse({"termination_time": time_text(row["termination_time"])})


def request_of(service: Service, person: Person, request: Request, body: bytes) -> Response:
    """``GET /delegation/ID/request``: a request for a proxy certificate."""
    del body
    _check(person, request)
    row = service.database.delegation(person.delegation_id)
    if row is not None and row["request"] is not None:
        return PlainTextResponse(row["request"])
    key = rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dray-fts")])
    made = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    pem = made.public_bytes(serialization.Encoding.PEM).decode()
    until = None if row is None else row["termination_time"]
    service.database.delegate(person.delegation_id, pem, until)
    return PlainTextResponse(pem)


def put(service: Service, person: Person, request: Request, body: bytes) -> Response:
    """``PUT /delegation/ID/credential``: check a proxy, and store its end."""
    _check(person, request)
    row = service.database.delegation(person.delegation_id)
    if row is None or row["request"] is None:
        raise RefusedError(400, "No proxy request has been made; ask for /delegation/ID/request")
    try:
        chain = x509.load_pem_x509_certificates(body)[:_CHAIN_MAX]
    except ValueError as error:
        raise RefusedError(400, f"the body is not a chain of PEM certificates: {error}") from error
    proxy, issuer = chain[0], chain[1] if len(chain) > 1 else None
    asked = x509.load_pem_x509_csr(row["request"].encode())
    if proxy.public_key() != asked.public_key():
        raise RefusedError(
            400, "the key of the proxy is not the key of the request; ask for a new request"
        )
    if issuer is None:
        raise RefusedError(
            400, "the chain does not contain the certificate that has signed the proxy"
        )
    try:
        proxy.verify_directly_issued_by(issuer)
        signer = subject_of(owner_of(chain[1:]))
    except (ValueError, TypeError, InvalidSignature) as error:
        raise RefusedError(
            400, f"the next certificate of the chain has not signed the proxy: {error}"
        ) from error
    if signer != person.dn:
        raise RefusedError(403, f"the proxy belongs to {signer}, but the caller is {person.dn}")
    until = min(each.not_valid_after_utc for each in chain).timestamp()
    if until < time.time():
        raise RefusedError(400, "the proxy has expired")
    service.database.delegate(person.delegation_id, None, until)
    return Response(status_code=201)


def forget(service: Service, person: Person, request: Request, body: bytes) -> Response:
    """``DELETE /delegation/ID``: forget the delegation."""
    del body
    _check(person, request)
    if not service.database.undelegate(person.delegation_id):
        raise RefusedError(404, "Delegated credentials do not exist")
    return Response(status_code=204)


def _check(person: Person, request: Request) -> None:
    if request.path_params["id"] != person.delegation_id:
        raise RefusedError(
            403, "The requested ID and the credentials ID do not match; ask for /whoami"
        )
