"""Reading what a process prints, line by line."""

import subprocess
import sys

from glassflow_dagster.driver.output_pipe import reading_lines


def printed(program: str) -> list[str]:
    lines: list[str] = []
    with reading_lines(lines.append) as output:
        subprocess.run([sys.executable, "-c", program], stdout=output, stderr=output, check=False)
    return lines


def test_all_that_a_process_has_printed_is_read_when_it_has_ended() -> None:
    assert printed("for n in range(10_000): print(n)") == [str(number) for number in range(10_000)]


def test_the_last_words_of_a_killed_process_are_read_even_without_a_line_end() -> None:
    assert printed("import os; os.write(2, b'a\\nlast words'); os.kill(os.getpid(), 9)") == ["a", "last words"]


def test_bytes_that_are_no_text_are_escaped() -> None:
    assert printed("import os; os.write(1, b'a\\xff\\n')") == ["a\\xff"]


def test_a_line_that_cannot_be_written_does_not_stop_the_reading() -> None:
    lines: list[str] = []

    def write(line: str) -> None:
        if line == "1":
            raise OSError("No space left on device")
        lines.append(line)

    with reading_lines(write) as output:
        subprocess.run([sys.executable, "-c", "print(1); print(2)"], stdout=output, check=True)
    assert lines == ["2"]
