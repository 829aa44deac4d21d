"""The story over gRPC, by stubs that protoc made. LATCHKEY_CREDENTIAL is a key of the workspace."""

import os
import uuid

import grpc
from google.rpc import error_details_pb2, status_pb2
from latchkey.v1 import identities_service_pb2, identities_service_pb2_grpc
from latchkey.v1 import keys_service_pb2, keys_service_pb2_grpc

address = os.environ.get("LATCHKEY_ADDRESS", "127.0.0.1:50051")
credential = os.environ["LATCHKEY_CREDENTIAL"]


def bearer(key):
    return {"metadata": [("authorization", f"Bearer {key}")], "timeout": 10}


def error_info(error):
    """What the status tells a program: google.rpc.ErrorInfo, whose reason is the code."""
    trailers = dict(error.trailing_metadata())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    info = error_details_pb2.ErrorInfo()
    if not any(detail.Unpack(info) for detail in status.details):
        raise error
    return info


def code_of(verdict):
    return keys_service_pb2.VerificationCode.Name(verdict.code).removeprefix("VERIFICATION_CODE_")


with grpc.insecure_channel(address) as channel:
    identities = identities_service_pb2_grpc.IdentitiesServiceStub(channel)
    keys = keys_service_pb2_grpc.KeysServiceStub(channel)

    identity = identities.CreateIdentity(
        identities_service_pb2.CreateIdentityRequest(external_id=f"user_{uuid.uuid4()}"), **bearer(credential)
    )
    print("created identity", identity.identity_id)

    created = keys.CreateKey(
        keys_service_pb2.CreateKeyRequest(name="example", identity_id=identity.identity_id), **bearer(credential)
    )
    print("created key", created.key_id)  # created.key is shown this once

    verify = keys_service_pb2.VerifyKeyRequest(key=created.key)
    print("verified:", code_of(keys.VerifyKey(verify, **bearer(credential))))

    disable = keys_service_pb2.UpdateKeyRequest(key_id=created.key_id, enabled=False)
    keys.UpdateKey(disable, **bearer(credential))
    print("verified:", code_of(keys.VerifyKey(verify, **bearer(credential))))

    try:
        keys.ListKeys(keys_service_pb2.ListKeysRequest(), **bearer(created.key))
    except grpc.RpcError as error:
        print("refused:", error_info(error).metadata["type"])
