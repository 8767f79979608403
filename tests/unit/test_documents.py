"""The pure parts of the example actors: finding, opening, paging and counting documents, without the library."""

import errno
import gzip
import io
import os
import tracemalloc
from pathlib import Path

import pypdf
import pytest

from actors.finding import MAX_FOUND_BYTES, find_documents, group_of
from actors.pages import (
    PAGE_CHARACTERS,
    clean_title,
    decode_slices,
    guess_encoding,
    html_text,
    paginate,
    title_of,
)
from actors.reading import Document, Unreadable, detect_kind, gunzip, load, open_document
from actors.summary import MAX_WORD_CHARACTERS, Extracted, Tally, count_words, most_frequent, summarise, words_of


def write(path: Path, data: bytes | str) -> str:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return str(path)


def tally(document: Document) -> Tally:
    counts = Tally()
    for page in document.pages:
        counts.add(page)
    return counts


def pdf_bytes(*pages: str, title: str = "") -> bytes:
    """A PDF of one line of Helvetica per page, cross-reference table included."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    bodies = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        resources = "/MediaBox [0 0 400 200] /Resources << /Font << /F1 3 0 R >> >>"
        bodies.append(f"<< /Type /Page /Parent 2 0 R {resources} /Contents {5 + 2 * number} 0 R >>")
        stream = f"BT /F1 12 Tf 20 100 Td ({text}) Tj ET"
        bodies.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    bodies.append(f"<< /Title ({title}) >>")
    out = io.BytesIO(b"%PDF-1.4\n")
    out.seek(0, io.SEEK_END)
    offsets = []
    for number, body in enumerate(bodies, start=1):
        offsets.append(out.tell())
        out.write(f"{number} 0 obj\n{body}\nendobj\n".encode())
    start = out.tell()
    out.write(f"xref\n0 {len(bodies) + 1}\n0000000000 65535 f \n".encode())
    out.writelines(f"{offset:010} 00000 n \n".encode() for offset in offsets)
    trailer = f"<< /Size {len(bodies) + 1} /Root 1 0 R /Info {len(bodies)} 0 R >>"
    out.write(f"trailer\n{trailer}\nstartxref\n{start}\n%%EOF\n".encode())
    return out.getvalue()


class TestKinds:
    def test_plain_text_is_counted_and_named_after_its_first_line(self, tmp_path: Path) -> None:
        document = open_document(write(tmp_path / "notes.txt", "======\nThree short words\n\nand don't forget\n"))
        assert (document.kind, document.title) == ("text", "Three short words")
        assert tally(document).words == 6

    def test_markdown_is_named_after_its_first_heading(self, tmp_path: Path) -> None:
        document = open_document(write(tmp_path / "README.md", "[badge]\n\n## The title ##\n\nBody.\n"))
        assert (document.kind, document.title) == ("markdown", "The title")

    def test_html_loses_tags_scripts_and_styles_and_keeps_its_title(self, tmp_path: Path) -> None:
        page = (
            "<html><head><title>A &amp; B\n manual</title><style>p { color: red }</style></head>"
            "<body><script>var hidden = '<p>';</script><p>One<b>two</b></p><p>three &lt;4&gt;</p> AT&T</body></html>"
        )
        document = open_document(write(tmp_path / "index.html", page))
        text = " ".join("".join(document.pages).split())
        assert (document.kind, document.title) == ("html", "A & B manual")
        assert text == "Onetwo three <4> AT&T"

    def test_html_is_known_by_its_content_whatever_the_name(self, tmp_path: Path) -> None:
        assert open_document(write(tmp_path / "page", "\n<!DOCTYPE HTML>\n<p>Hello</p>")).kind == "html"

    def test_an_empty_element_written_as_closed_hides_nothing(self) -> None:
        assert "".join(html_text("x", ["<title/><p>seen</p>"])).strip() == "seen"

    def test_a_pdf_has_its_own_pages_and_title(self, tmp_path: Path) -> None:
        document = open_document(write(tmp_path / "a.bin", pdf_bytes("first page", "second", title="A title")))
        assert (document.kind, document.title, document.expected_pages) == ("pdf", "A title", 2)
        assert [page.strip() for page in document.pages] == ["first page", "second"]

    @pytest.mark.parametrize(
        ("name", "data", "kind"),
        [
            ("changelog.Debian.gz", b"first second", "text"),
            ("guide.md.gz", b"# Guide\n", "markdown"),
            ("guide.html.gz", b"<p>Guide</p>", "html"),
            ("manual.pdf.gz", pdf_bytes("first second"), "pdf"),
        ],
    )
    def test_gzip_of_any_kind_is_seen_through(self, tmp_path: Path, name: str, data: bytes, kind: str) -> None:
        document = open_document(write(tmp_path / name, gzip.compress(data)))
        assert document.kind == kind
        assert tally(document).words in {1, 2}

    def test_the_digest_is_of_the_stored_file(self, tmp_path: Path) -> None:
        first, second = (
            open_document(write(tmp_path / f"{level}.gz", gzip.compress(b"same" * 99, level, mtime=0)))
            for level in (1, 9)
        )
        assert first.digest != second.digest
        assert len(first.digest) == 64

    def test_an_empty_file_is_a_document_without_pages(self, tmp_path: Path) -> None:
        document = open_document(write(tmp_path / "empty.txt", b""))
        assert (tally(document).pages, document.expected_pages, document.title) == (0, 0, "empty.txt")


class TestRefusals:
    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (b"\x89PNG\r\n\x1a\n" + bytes(40), "a PNG image"),
            (b"\x7fELF\x02\x01\x01" + bytes(40), "an ELF program"),
            (bytes(range(256)) * 4, "unknown binary data"),
            (gzip.compress(gzip.compress(b"text", mtime=0), mtime=0), "gzip inside gzip"),
            (gzip.compress(b"text" * 1000, mtime=0)[:-9], "broken gzip"),
            (b"\x1f\x8b rubbish", "broken gzip"),
            (b"%PDF-1.7\nrubbish", "broken PDF"),
        ],
    )
    def test_what_is_no_document_is_refused_by_path_and_reason(self, tmp_path: Path, data: bytes, reason: str) -> None:
        path = write(tmp_path / "odd.txt", data)
        with pytest.raises(Unreadable, match=reason) as caught:
            tally(open_document(path))
        assert str(caught.value).startswith(path)

    def test_missing_files_folders_loops_and_odd_paths_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "loop").symlink_to("loop")
        plain = write(tmp_path / "plain", "text")
        for path in (str(tmp_path / "gone"), str(tmp_path), str(tmp_path / "loop"), f"{plain}/x", "a\0b", "n" * 5000):
            with pytest.raises(Unreadable):
                load(path)

    def test_a_named_pipe_is_refused_without_waiting_for_a_writer(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(Unreadable, match="not a regular file"):
            load(str(tmp_path / "pipe"))

    @pytest.mark.parametrize(("code", "expected"), [(errno.EACCES, Unreadable), (errno.EIO, OSError)])
    def test_a_refused_permission_is_final_but_an_io_error_may_be_retried(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, expected: type[Exception]
    ) -> None:
        def refuse(*_args: object) -> None:
            raise OSError(code, os.strerror(code))

        path = write(tmp_path / "a.txt", "text")
        monkeypatch.setattr(Path, "open", refuse)
        with pytest.raises(expected, match=os.strerror(code)[1:]):
            load(path)

    def test_a_file_over_the_limit_is_refused_and_one_at_the_limit_is_not(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.txt", "x" * 100)
        assert len(load(path, limit=100).data) == 100
        with pytest.raises(Unreadable, match="larger than 99 bytes"):
            load(path, limit=99)

    def test_a_decompression_bomb_is_refused_within_bounded_memory(self) -> None:
        bomb = gzip.compress(bytes(64 * 2**20))
        tracemalloc.start()
        try:
            with pytest.raises(Unreadable, match="decompresses to more than"):
                gunzip("bomb.gz", bomb, limit=2**20)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 8 * 2**20

    def test_a_page_of_pdf_that_inflates_hugely_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("actors.reading._MAX_PAGE_BYTES", 100)
        document = open_document(write(tmp_path / "big.pdf", pdf_bytes("small", "large " * 100)))
        assert next(document.pages).strip() == "small"
        with pytest.raises(Unreadable, match="page 2 decompresses"):
            next(document.pages)

    def test_an_encrypted_pdf_is_refused(self, tmp_path: Path) -> None:
        writer = pypdf.PdfWriter()
        writer.add_blank_page(100, 100)
        writer.encrypt("secret", algorithm="RC4-128")
        writer.write(tmp_path / "locked.pdf")
        with pytest.raises(Unreadable, match="encrypted"):
            open_document(str(tmp_path / "locked.pdf"))

    def test_a_comment_that_never_ends_is_refused_not_buffered(self) -> None:
        with pytest.raises(Unreadable, match="HTML tag, comment or script"):
            list(html_text("x.html", ["<!--", *["x" * 2**16] * 40]))


class TestEncodings:
    @pytest.mark.parametrize(
        ("data", "encoding"),
        [
            ("Größe".encode(), "utf-8"),
            ("Größe".encode("latin-1"), "cp1252"),
            ("Größe".encode("utf-8-sig"), "utf-8-sig"),
            ("Größe".encode("utf-16"), "utf-16"),
            ("Größe".encode("utf-32"), "utf-32"),
        ],
    )
    def test_the_encoding_is_guessed_and_the_text_comes_out(self, tmp_path: Path, data: bytes, encoding: str) -> None:
        assert guess_encoding(data) == encoding
        assert "".join(open_document(write(tmp_path / "a.txt", data)).pages) == "Größe"

    def test_html_may_declare_its_charset(self, tmp_path: Path) -> None:
        data = '<html><meta charset="koi8-r"><p>Привет</p></html>'.encode("koi8-r")
        assert "Привет" in "".join(open_document(write(tmp_path / "a.html", data)).pages)

    @pytest.mark.parametrize("charset", ["zlib", "unicode_escape", "iso-8859-99", "none"])
    def test_a_charset_that_is_no_charset_is_not_believed(self, charset: str) -> None:
        assert guess_encoding(f"<meta charset={charset}>".encode() + b"\xfc") == "cp1252"

    def test_a_character_on_the_edge_of_two_slices_survives(self) -> None:
        text = "x" * (2**16 - 1) + "€" + "y" * 2**16
        assert "".join(decode_slices(text.encode(), "utf-8")) == text

    def test_bytes_that_are_no_text_in_the_declared_encoding_are_replaced(self) -> None:
        assert "".join(decode_slices(b"a\xffb", "utf-8")) == "a\ufffdb"


class TestPages:
    def test_pages_keep_every_character_and_cut_no_word(self) -> None:
        text = "some words of text " * 2_000
        pages = list(paginate(text[start : start + 777] for start in range(0, len(text), 777)))
        assert "".join(pages) == text
        assert max(map(len, pages)) <= PAGE_CHARACTERS
        assert sum(count_words(page) for page in pages) == count_words(text) == 8_000

    def test_a_form_feed_ends_a_page_and_blank_pages_are_left_out(self) -> None:
        assert list(paginate(["one\ftw", "o\f \f\n\fthree"])) == ["one\f", "two\f", "three"]

    def test_a_run_without_spaces_is_cut_at_the_size(self) -> None:
        assert list(paginate(["x" * 25], size=10)) == ["x" * 10, "x" * 10, "x" * 5]

    def test_a_text_of_exactly_one_page_is_one_page(self) -> None:
        assert list(paginate(["x" * 10], size=10)) == ["x" * 10]

    def test_titles_are_one_short_printable_line(self) -> None:
        assert clean_title("  a\x00b \ud800\n c" + "d" * 500).startswith("a b cd")
        assert len(clean_title("d" * 500)) == 120
        assert title_of("text", "....\n==\n") == ""


class TestCounting:
    def test_words_are_runs_of_letters_of_any_script(self) -> None:
        assert words_of("Don't re-use x86_64: 42 Größe, naïve Привет \u2019tis") == [
            "don't", "re-use", "x", "größe", "naïve", "привет", "tis",
        ]  # fmt: skip

    def test_a_tally_holds_a_bounded_number_of_words(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("actors.summary.MAX_DISTINCT", 3)
        counts = Tally()
        counts.add("a b c d e a " + "z" * (MAX_WORD_CHARACTERS + 1))
        assert (counts.words, dict(counts.terms)) == (7, {"a": 2, "b": 1, "c": 1})

    def test_equally_frequent_words_come_in_alphabetical_order(self) -> None:
        assert most_frequent({"b": 1, "c": 2, "a": 1}, 2) == [("c", 2), ("a", 1)]

    def test_a_summary_leaves_stop_words_out_and_repeats_exactly(self) -> None:
        extracted = Extracted(
            path="a.txt", kind="text", title="T", pages=1, words=100, characters=600, distinct=50, digest="d",
            terms={"the": 30, "with": 20, "key": 5, "lease": 7, "ok": 9},
        )  # fmt: skip
        refined = summarise(extracted)
        assert refined.top == (("lease", 7), ("key", 5))
        assert (refined.reading_minutes, refined.richness) == (0.43, 5.0)
        assert summarise(extracted) == refined

    def test_a_document_without_words_has_a_summary_too(self) -> None:
        nothing = Extracted(
            path="a", kind="pdf", title="", pages=1, words=0, characters=0, distinct=0, digest="d", terms={}
        )
        assert (summarise(nothing).richness, summarise(nothing).top) == (0.0, ())


class TestFinding:
    def test_an_empty_or_missing_or_impossible_folder_has_no_documents(self, tmp_path: Path) -> None:
        plain = Path(write(tmp_path / "plain.txt", "text"))
        (tmp_path / "empty").mkdir()
        for folder in (tmp_path / "empty", tmp_path / "gone", plain, Path("a\0b")):
            assert find_documents(folder) == []

    def test_kinds_are_mixed_in_a_fixed_order(self, tmp_path: Path) -> None:
        for name in ("b.txt", "a.txt", "c.txt", "d.md", "e.html", "README.gz", "copyright", "f.pdf"):
            write(tmp_path / name, "x")
        names = [path.name for path in find_documents(tmp_path)]
        assert names == ["e.html", "d.md", "f.pdf", "a.txt", "README.gz", "b.txt", "c.txt", "copyright"]
        assert [path.name for path in find_documents(tmp_path, limit=3)] == names[:3]
        assert find_documents(tmp_path, limit=0) == []

    def test_links_pipes_empty_and_huge_files_are_passed_over(self, tmp_path: Path) -> None:
        inner = tmp_path / "inner"
        inner.mkdir()
        kept = Path(write(inner / "kept.txt", "x"))
        write(inner / "empty.txt", "")
        with (inner / "huge.txt").open("wb") as file:
            file.truncate(MAX_FOUND_BYTES + 1)
        (inner / "up").symlink_to(tmp_path)
        (inner / "link.txt").symlink_to(kept)
        os.mkfifo(inner / "pipe.txt")
        (inner / "folder.txt").mkdir()
        assert find_documents(tmp_path) == [kept]

    def test_a_name_that_no_message_can_carry_is_passed_over(self, tmp_path: Path) -> None:
        (Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt"))).write_text("x")
        assert find_documents(tmp_path) == []

    def test_by_default_this_machine_has_documents_and_nearly_all_can_be_read(self) -> None:
        found = find_documents(limit=60)
        assert found
        assert found == find_documents(limit=60)
        assert len(set(found)) == len(found)
        refused = 0
        for path in found:
            try:
                next(open_document(str(path)).pages, "")
            except Unreadable:
                refused += 1
        assert refused <= len(found) // 10

    @pytest.mark.parametrize(
        ("name", "group"),
        [
            ("changelog.Debian.gz", "text.gz"), ("README", "text"), ("Guide.MD", "markdown"), ("a.pdf.gz", "pdf.gz"),
            ("history.py", None), ("logo.png", None), ("a.tar.gz", None), ("", None),
        ],
    )  # fmt: skip
    def test_names_tell_groups(self, name: str, group: str | None) -> None:
        assert group_of(name) == group


def test_a_name_on_its_own_never_makes_binary_data_text() -> None:
    with pytest.raises(Unreadable):
        detect_kind("README.md", b"\0" * 100)
