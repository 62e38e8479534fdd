"""The rounds of a campaign: each is met by the faults that none before it has noticed, so that what costs least comes first."""

from dataclasses import dataclass

STAGES = ("own file", "own folder", "near", "all")


@dataclass(frozen=True)
class Round:
    """Tests that faults meet: how near to the module, and whether as `make prove` runs them."""

    stage: str
    is_prove: bool = False

    @property
    def name(self) -> str:
        """The round's column in the table."""
        return f"{self.stage}, prove" if self.is_prove else self.stage

    @property
    def profile(self) -> tuple[str, ...]:
        """Options of pytest."""
        return ("--hypothesis-profile=prove", "-m", "prove or not prove") if self.is_prove else ()

    @property
    def files(self) -> int:
        """Test files a run: a process that runs more grows large, and its time limit says less."""
        return 1 if self.is_prove else 20

    @property
    def patience(self) -> int:
        """By how much a run may take longer than one of quick tests."""
        return 10 if self.is_prove else 1


def counted(reach: str, is_prove: bool) -> list[Round]:
    """Return the rounds whose findings count, up to a stage."""
    stages = STAGES[: STAGES.index(reach) + 1]
    return [Round(stage, way) for way in (False, True)[: 1 + is_prove] for stage in stages]


def planned(reach: str, is_prove: bool) -> list[Round]:
    """Return the rounds that are held: of all quick tests, those of `make prove` say all and more."""
    return [one for one in counted(reach, is_prove) if one.is_prove or not is_prove or one.stage in STAGES[:3]]
