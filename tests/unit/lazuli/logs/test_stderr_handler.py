import json
import logging
import os
import threading

from lazuli.logs.lines import JsonFormatter
from lazuli.logs.stderr_handler import StderrHandler


def test_lines_of_several_threads_do_not_mix(capfd):
    handler = StderrHandler()
    handler.setFormatter(JsonFormatter({}, content=False))
    logger = logging.Logger("lazuli.some")
    logger.addHandler(handler)
    texts = [f"{number}:" + "x" * 3000 for number in range(8)]

    def write(text):
        for _ in range(20):
            logger.info("%s", text)

    threads = [threading.Thread(target=write, args=[text]) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = [json.loads(line)["event"] for line in capfd.readouterr().err.splitlines()]
    assert sorted(lines) == sorted(texts * 20)


def test_what_is_not_unicode_is_written_all_the_same(capfd):
    logger = logging.Logger("lazuli.some")
    logger.addHandler(StderrHandler())
    logger.info("a lone %s", "\ud800")
    assert capfd.readouterr().err == "a lone \\ud800\n"


def test_a_write_that_takes_a_part_goes_on(monkeypatch, capfd):
    write = os.write
    monkeypatch.setattr("lazuli.logs.stderr_handler.os.write", lambda place, data: write(place, data[:3]))
    logger = logging.Logger("lazuli.some")
    logger.addHandler(StderrHandler())
    logger.info("0123456789")
    assert capfd.readouterr().err == "0123456789\n"
