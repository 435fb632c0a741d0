"""`throughline users erase`, on a database of the test: it asks first, and says what went."""

from fakes.fake_dependencies import FakeWorld


def test_erasing_a_user_is_asked_for_and_reported(database_url: str) -> None:
    world = FakeWorld(database_url=database_url)
    world.run("keys", "create", "--user", "anna")

    refused = world.run("users", "erase", "anna", typed="n\n")
    erased = world.run("users", "erase", "anna", "--yes")
    again = world.run("users", "erase", "anna", "--yes")

    assert (refused.exit_code, "Erase the user anna" in refused.output) == (1, True)
    assert (erased.exit_code, "user anna is erased:" in erased.stdout) == (0, True)
    assert "memories: 0, keys: 1, access tokens: 0" in erased.stdout
    assert "records of costs: 0, which stay without the user" in erased.stdout
    assert (again.exit_code, "There is no user 'anna'" in again.stderr) == (1, True)
