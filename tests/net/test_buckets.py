from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from karat.findings import UsageError
from karat.net.buckets import allows_http, is_anonymous, parse_address


@pytest.mark.parametrize(
    "url",
    ["s3://", "s3:///x", "ftp://bucket/x", "bucket/x", "s3://user:hunter2@bucket/x", "az://container/x?sig=hunter2"],
)
def test_what_is_no_address_is_not_repeated(url: str) -> None:
    with pytest.raises(UsageError, match="expected s3://BUCKET/PREFIX") as raised:
        parse_address(url)
    assert "hunter2" not in str(raised.value)


@pytest.mark.slow
@given(
    st.sampled_from(["s3", "gs", "az"]),
    st.text(st.sampled_from("ab9.-"), min_size=1),
    st.text(st.characters(exclude_characters="?/", exclude_categories=["Cs", "Cc"])).map(lambda text: text.strip("/")),
)
def test_an_address_survives_its_url(scheme: str, bucket: str, prefix: str) -> None:
    address = parse_address(f"{scheme}://{bucket}/{prefix}")
    assert (address.scheme, address.bucket, address.prefix) == (scheme, bucket, prefix)
    assert parse_address(address.url) == address


@pytest.mark.parametrize(
    ("scheme", "env", "anonymous"),
    [
        ("s3", {}, True),
        ("s3", {"AWS_ACCESS_KEY_ID": "k"}, False),
        ("s3", {"AWS_SKIP_SIGNATURE": "false"}, False),
        ("s3", {"GOOGLE_SERVICE_ACCOUNT": "k"}, True),
        ("gs", {}, True),
        ("gs", {"GOOGLE_APPLICATION_CREDENTIALS": "k"}, False),
        ("az", {"AZURE_STORAGE_ACCOUNT_NAME": "n"}, True),
        ("az", {"AZURE_STORAGE_SAS_TOKEN": "k"}, False),
    ],
)
def test_who_signs(tmp_path: Path, scheme: str, env: dict[str, str], anonymous: bool) -> None:  # noqa: FBT001 - a parameter of the test
    assert is_anonymous(scheme, {"HOME": str(tmp_path), **env}) is anonymous


def test_gcloud_logins_are_credentials(tmp_path: Path) -> None:
    login = tmp_path / ".config/gcloud/application_default_credentials.json"
    login.parent.mkdir(parents=True)
    login.touch()
    assert not is_anonymous("gs", {"HOME": str(tmp_path)})
    assert is_anonymous("s3", {"HOME": str(tmp_path)})
    assert is_anonymous("gs", {}), "nobody's home"


@pytest.mark.parametrize(
    ("env", "allowed"),
    [
        ({}, False),
        ({"AWS_ENDPOINT_URL": "https://minio.example"}, False),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, True),
        ({"AWS_ENDPOINT_URL_S3": "http://localhost:1"}, True),
        ({"AWS_ENDPOINT_URL": "http://minio.example", "AWS_ALLOW_HTTP": "true"}, True),
    ],
)
def test_where_plain_http_is_allowed(env: dict[str, str], allowed: bool) -> None:  # noqa: FBT001 - a parameter of the test
    assert allows_http("s3", env) is allowed


def test_plain_http_to_another_machine_must_be_asked_for() -> None:
    with pytest.raises(UsageError, match="found plain http") as raised:
        allows_http("s3", {"AWS_ENDPOINT_URL": "http://minio.example"})
    assert raised.value.next_command == "export AWS_ALLOW_HTTP=true"
