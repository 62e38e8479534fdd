"""Worker pools return the results of shards, and leave no process."""

import threading

from optim.execution.tasks import ShardWorker, ThreadCrew


class Post(ShardWorker):
    """Answer with all received messages and their sender."""

    def answer(self, shard, question, own):
        """Return the thread as well."""
        return shard, question, own, threading.current_thread()


def test_each_shard_answers_the_question_with_what_it_alone_is_told():
    with ThreadCrew(Post(), 2) as crew:
        answers = crew.ask("how many", {3: "c", 1: "a", 2: "b"})
    assert {shard: answer[:3] for shard, answer in answers.items()} == {
        3: (3, "how many", "c"),
        1: (1, "how many", "a"),
        2: (2, "how many", "b"),
    }


def test_threads_end_with_the_crew():
    with ThreadCrew(Post(), 2) as crew:
        workers = {answer[3] for answer in crew.ask(None, {1: None, 2: None}).values()}
        assert threading.current_thread() not in workers
        assert all(one.is_alive() for one in workers)
    assert not any(one.is_alive() for one in workers)
