// Notes beside token files, and what goes by them: checks, merging, and the loader's look at the vocabulary.
#include "data/note.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "data/check.h"
#include "data/eval_set.h"
#include "data/loader.h"
#include "data/merge.h"
#include "token_files.h"

namespace ms::data {
namespace {

Note bytes_note(std::int64_t documents, std::int64_t tokens) {
  Note note = note_of(ByteTokenizer(), "byte", {});
  note.documents = documents;
  note.tokens = tokens;
  note.text_bytes = tokens - documents;
  note.source_files = 1;
  return note;
}

// Documents of bytes with their note; `change` is applied to that.
template <class Change>
void write_noted(const std::string& prefix, const std::vector<std::vector<std::int32_t>>& documents, Change&& change) {
  write_tokens(prefix, documents);
  std::int64_t tokens = 0;
  for (const auto& document : documents) tokens += std::ssize(document);
  Note note = bytes_note(std::ssize(documents), tokens);
  change(note);
  spill(note_path(prefix), to_json(note).dump());
}
void write_noted(const std::string& prefix, const std::vector<std::vector<std::int32_t>>& documents) {
  write_noted(prefix, documents, [](Note&) {});
}

TEST(Note, IsReadAsItWasWritten) {
  const TempDir dir;
  Note note = bytes_note(3, 20);
  note.tokenizer = "tokenizer.json";
  note.tokenizer_path = "/models/tokenizer.json";
  note.tokenizer_fingerprint = "0123456789abcdef";
  note.eod_token = "<end>";
  spill(dir / "t.meta.json", to_json(note).dump());
  const std::optional<Note> read = read_note(dir / "t");
  ASSERT_TRUE(read);
  EXPECT_EQ(to_json(*read).dump(), to_json(note).dump());
  EXPECT_TRUE(read->same_tokenizer(note));
  EXPECT_FALSE(read->same_tokenizer(bytes_note(3, 20)));
  EXPECT_FALSE(read_note(dir / "none"));
}

TEST(Note, IsRefusedWhereItIsDamaged) {
  const TempDir dir;
  const std::string good = to_json(bytes_note(1, 2)).dump(2);
  const std::string other_schema = std::string(good).replace(good.find("\"schema\": 1"), 11, "\"schema\": 2");
  for (const std::string& bad : {good.substr(0, 30), std::string("[]"), std::string("{\"schema\": 1}"), other_schema}) {
    spill(dir / "t.meta.json", bad);
    const Error error = thrown_by([&] { read_note(dir / "t"); });
    EXPECT_EQ(error.kind(), "data.note");
    EXPECT_EQ(error.blame(), Blame::storage);
    EXPECT_THAT(error.message(), testing::HasSubstr("t.meta.json: "));
  }
}

TEST(Note, NamesTheTokenizer) {
  const TempDir dir;
  write_noted(dir / "t", {{'a', 256}});
  EXPECT_EQ(tokenizer_of(dir / "t", std::nullopt)->name(), "byte");
  EXPECT_EQ(tokenizer_of(dir / "t", 300)->name(), "byte") << "the note counts, not the model";
  EXPECT_EQ(tokenizer_of(dir / "none", 257)->name(), "byte");
  EXPECT_EQ(tokenizer_of(dir / "none", 300), nullptr);
  write_noted(dir / "t", {{'a', 256}}, [&](Note& note) { note.tokenizer_path = dir / "gone.json"; });
  EXPECT_EQ(thrown_by([&] { tokenizer_of(dir / "t", std::nullopt); }).blame(), Blame::user);
}

TEST(CheckTokens, AcceptsWhatIsSoundAndNamesWhatIsNot) {
  const TempDir dir;
  const auto error_of_check = [&](std::optional<std::int64_t> vocab_size = {}) {
    return test::error_from([&] { check_tokens(TokenFile(dir / "t"), read_note(dir / "t"), vocab_size); });
  };
  write_noted(dir / "t", {{1, 2, 256}, {3, 256}});
  EXPECT_FALSE(error_of_check());
  EXPECT_FALSE(error_of_check(257));
  EXPECT_EQ(error_of_check(256)->kind(), "data.vocab");
  EXPECT_EQ(error_of_check(256)->blame(), Blame::user);
  EXPECT_THAT(error_of_check(2)->message(), testing::HasSubstr("position 1, in document 0, is 2, expected 0 to 1"));

  write_noted(dir / "t", {{1, 256}, {300, 256}});
  EXPECT_EQ(error_of_check()->blame(), Blame::storage);
  EXPECT_THAT(error_of_check()->message(), testing::HasSubstr("position 2, in document 1, is 300, expected 0 to 256"));
  write_noted(dir / "t", {{1, 256}, {3}});
  EXPECT_THAT(error_of_check()->message(), testing::HasSubstr("document 1 does not end in token 256"));
  write_noted(dir / "t", {{1, 256}}, [](Note& note) { note.documents = 2; });
  EXPECT_EQ(error_of_check()->kind(), "data.note");
  write_noted(dir / "t", {{1, 256}}, [](Note& note) { note.tokens = 3; });
  EXPECT_THAT(error_of_check()->message(), testing::HasSubstr("has 3 tokens, and"));
}

TEST(CheckTokens, NeedsNoNote) {
  const TempDir dir;
  write_tokens(dir / "t", {{7}, {70'000}}, TokenType::i32);
  check_tokens(TokenFile(dir / "t"), {}, {});
  std::string bin = slurp(dir / "t.bin");
  bin[7] = '\xff';
  spill(dir / "t.bin", bin);
  const Error error = thrown_by([&] { check_tokens(TokenFile(dir / "t"), {}, 80'000); });
  EXPECT_EQ(error.blame(), Blame::storage) << "no tokenizer has ids below 0";
}

TEST(Merge, KeepsDocumentsInOrderAndAddsUpNotes) {
  const TempDir dir;
  write_noted(dir / "a", {{1, 256}, {2, 3, 256}});
  write_noted(dir / "b", {{4, 256}});
  const MergeReport report = merge({dir / "a", dir / "b", dir / "a"}, dir / "out");
  EXPECT_EQ(report.num_documents, 5);
  const TokenFile file(dir / "out");
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.num_tokens()));
  file.read(0, tokens);
  EXPECT_THAT(tokens, testing::ElementsAre(1, 256, 2, 3, 256, 4, 256, 1, 256, 2, 3, 256));
  EXPECT_EQ(file.document(2).begin, 5);
  const Note note = read_note(dir / "out").value();
  EXPECT_EQ(note.documents, 5);
  EXPECT_EQ(note.tokens, 12);
  EXPECT_EQ(note.text_bytes, 7);
  EXPECT_EQ(note.source_files, 3);
  check_tokens(file, note, {});
  for (const std::string& name : dir.list()) EXPECT_THAT(name, testing::Not(testing::EndsWith(".part")));
}

TEST(Merge, RecordsThatChatTemplatesDiffer) {
  const TempDir dir;
  write_noted(dir / "plain", {{1, 256}});
  for (const char* name : {"chatml", "llama3"})
    write_noted(dir / name, {{1, 2}}, [&](Note& note) { note.chat_template = name; });
  const struct {
    std::vector<std::string> files;
    const char* chat_template;
    std::size_t warnings;
  } kRows[] = {{{"chatml", "chatml"}, "chatml", 0},
               {{"plain", "plain"}, "", 0},
               {{"chatml", "llama3", "plain"}, "mixed", 1},
               {{"plain", "chatml"}, "mixed", 1},
               {{"chatml", "plain"}, "mixed", 1}};
  for (const auto& row : kRows) {
    std::vector<std::string> prefixes;
    for (const std::string& file : row.files) prefixes.push_back(dir / file);
    const std::size_t before = log::recent_lines().size();
    merge(prefixes, dir / "out");
    EXPECT_EQ(log::recent_lines().size(), before + row.warnings);
    EXPECT_EQ(read_note(dir / "out")->chat_template, row.chat_template);
    check_tokens(TokenFile(dir / "out"), read_note(dir / "out"), {});
  }
}

TEST(Merge, RefusesWhatIsNotOfOneTokenizer) {
  const TempDir dir;
  write_noted(dir / "a", {{1, 256}});
  write_noted(dir / "other", {{1, 256}}, [](Note& note) { note.tokenizer_fingerprint = "0123456789abcdef"; });
  write_tokens(dir / "plain", {{1}});
  write_tokens(dir / "wide", {{1}}, TokenType::i32);
  write_tokens(dir / "below", {{1}, {2}}, TokenType::i32);
  std::string bin = slurp(dir / "below.bin");
  bin[7] = '\xff';
  spill(dir / "below.bin", bin);
  const auto refusal = [&](const char* one, const char* other) {
    const Error error = thrown_by([&] { merge({dir / one, dir / other}, dir / "out"); });
    EXPECT_FALSE(std::filesystem::exists(dir / "out.bin"));
    return error;
  };
  EXPECT_EQ(refusal("a", "other").kind(), "data.merge");
  EXPECT_THAT(refusal("a", "plain").message(), testing::HasSubstr("plain has no PREFIX.meta.json"));
  EXPECT_THAT(refusal("plain", "a").message(), testing::HasSubstr("plain has no PREFIX.meta.json"));
  EXPECT_THAT(refusal("plain", "wide").message(), testing::HasSubstr("holds u16, and"));
  EXPECT_EQ(refusal("wide", "below").blame(), Blame::storage);
  EXPECT_THAT(refusal("wide", "below").message(), testing::HasSubstr("below.bin: the token at position 1 is -"));
  EXPECT_EQ(merge({dir / "plain", dir / "plain"}, dir / "out").num_tokens, 2);
  EXPECT_FALSE(read_note(dir / "out"));
}

TEST(LoaderNote, RefusesAModelWithoutTheTokenizersIds) {
  const TempDir dir;
  write_noted(dir / "t", {std::vector<std::int32_t>(100, 1)});
  DataConfig config;
  config.train = {dir / "t"};
  const auto load = [&](std::int64_t vocab) { Loader(config, {.seq = 4, .global_batch = 1}, vocab, 1); };
  load(257);
  load(384);
  const Error error = thrown_by([&] { load(256); });
  EXPECT_EQ(error.kind(), "data.vocab");
  EXPECT_EQ(error.blame(), Blame::user);
  EXPECT_THAT(error.hint(), testing::HasSubstr("set model.vocab = 257"));
  EXPECT_EQ(thrown_by([&] { EvalSet({"t", dir / "t"}, 4, 256, 0); }).kind(), "data.vocab");
}

TEST(LoaderNote, WarnsOfTwoTokenizers) {
  const TempDir dir;
  write_noted(dir / "a", {std::vector<std::int32_t>(100, 1)});
  write_noted(dir / "b", {std::vector<std::int32_t>(100, 1)},
              [](Note& note) { note.tokenizer_fingerprint = "0123456789abcdef"; });
  DataConfig config;
  config.train = {dir / "a", dir / "b"};
  const std::size_t before = log::recent_lines().size();
  Loader(config, {.seq = 4, .global_batch = 1}, 257, 1);
  const std::vector<std::string> lines = log::recent_lines();
  ASSERT_EQ(lines.size(), before + 1);
  EXPECT_THAT(lines.back(), testing::HasSubstr("were written with different tokenizers"));
}

}  // namespace
}  // namespace ms::data
