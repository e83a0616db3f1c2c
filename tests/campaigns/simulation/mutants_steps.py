"""Mutants of a handler's steps: begin, finish."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from onejob.core.command import Facts
from onejob.core.memo import BeginStep, FinishStep
from onejob.core.states import Delivery

from .mutant_registry import mutant
from .process import Components


@mutant
def step_begun_by_a_stale_attempt() -> Iterator[Components]:
    decide = BeginStep.decide

    def trusting(self: BeginStep, facts: Facts, now: int) -> Any:
        job = facts.jobs.get(self.job_id)
        return decide(self if job is None else replace(self, token=job.token, holder=job.holder), facts, now)

    with patch.object(BeginStep, "decide", trusting):
        yield Components()


@mutant
def step_finished_by_an_earlier_run() -> Iterator[Components]:
    decide = FinishStep.decide

    def trusting(self: FinishStep, facts: Facts, now: int) -> Any:
        memo = facts.memo
        if memo is None or memo.ended_at:
            return decide(self, facts, now)
        return decide(replace(self, token=memo.token, step_holder=memo.holder), facts, now)

    with patch.object(FinishStep, "decide", trusting):
        yield Components()


@mutant
def finished_step_is_run_again() -> Iterator[Components]:
    decide = BeginStep.decide

    def forgetful(self: BeginStep, facts: Facts, now: int) -> Any:
        memo = facts.memo
        return decide(self, facts if memo is None else replace(facts, memo=replace(memo, ended_at=0)), now)

    with patch.object(BeginStep, "decide", forgetful):
        yield Components()


@mutant
def interrupted_at_most_once_step_is_run_again() -> Iterator[Components]:
    decide = BeginStep.decide

    def careless(self: BeginStep, facts: Facts, now: int) -> Any:
        return decide(replace(self, delivery=Delivery.AT_LEAST_ONCE), facts, now)

    with patch.object(BeginStep, "decide", careless):
        yield Components()


@mutant
def step_with_other_arguments_is_answered() -> Iterator[Components]:
    decide = BeginStep.decide

    def trusting(self: BeginStep, facts: Facts, now: int) -> Any:
        memo = facts.memo
        return decide(self if memo is None else replace(self, fingerprint=memo.fingerprint), facts, now)

    with patch.object(BeginStep, "decide", trusting):
        yield Components()


@mutant
def repeated_begin_of_a_step_is_a_second_run() -> Iterator[Components]:
    """A begin whose reply was lost is taken for an interrupted step."""
    decide = BeginStep.decide

    def without_echo(self: BeginStep, facts: Facts, now: int) -> Any:
        memo = facts.memo
        if memo is not None and not memo.ended_at and memo.holder == self.step_holder:
            return decide(replace(self, step_holder=b"another"), facts, now)
        return decide(self, facts, now)

    with patch.object(BeginStep, "decide", without_echo):
        yield Components()
