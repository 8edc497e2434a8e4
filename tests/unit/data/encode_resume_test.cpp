// Encoding that is killed at any moment, by any number of workers: the result is that of one that ran undisturbed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include "data/encode.h"
#include "packed.h"
#include "support/fork.h"
#include "token_files.h"

namespace ms::data {
namespace {

using Clock = std::chrono::steady_clock;

// A token for two bytes, so that it matters where a text is split.
class PairTokenizer final : public Tokenizer {
 public:
  std::string_view name() const override { return "pair"; }
  std::int64_t vocab_size() const override { return 65'537; }
  std::int32_t end_of_document() const override { return 65'536; }
  bool takes_pieces() const override { return false; }
  std::string fingerprint() const override { return ""; }
  std::vector<std::string> special_tokens() const override { return {}; }
  bool encode(std::string_view text, std::vector<std::int32_t>& tokens) const override {
    const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0; };
    for (std::size_t i = 0; i < text.size(); i += 2) tokens.push_back(byte(i) << 8 | byte(i + 1));
    return true;
  }
  std::string decode(std::span<const std::int32_t> /*tokens*/, bool /*goes_on*/) const override { return ""; }
};

// Files of every kind: what is skipped late, too, so that tokens are taken back.
std::vector<std::string> spill_corpus(const TempDir& dir) {
  const std::string text = numbers(60'000);
  std::string lines, fortunes;
  for (int i = 0; i < 10'000; ++i) {
    const std::string number = std::to_string(i * 7919LL % 1'000'003);
    lines += "{\"id\": " + number + ", \"text\": \"line \\u00e9 " + number + "\"}\n";
    fortunes += number + (i % 7 == 0 ? "\n%\n" : "\n");
  }
  spill(dir / "a", fortunes);
  spill(dir / "b.jsonl.zst", zstd_packed(lines));
  spill(dir / "c", text + text + text + text + "\0"s);  // skipped after 1.6 MB
  spill(dir / "d.gz", gzipped(text));
  spill(dir / "e", "");
  spill(dir / "f.jsonl", lines + "bad\n");
  spill(dir / "g", text);
  return {dir / "a", dir / "b.jsonl.zst", dir / "c", dir / "d.gz", dir / "e", dir / "f.jsonl", dir / "g"};
}

EncodeReport encode_corpus(const std::string& prefix, const std::vector<std::string>& files, const Tokenizer& tokenizer,
                           int workers) {
  EncodeOptions options;
  options.read.split_on = "%";
  options.skip_bad_lines = true;
  options.workers = workers;
  options.save_every_bytes = 100'000;
  return encode(prefix, files, tokenizer, note_of(tokenizer, std::string(tokenizer.name()), {}), options);
}

std::string all_of(const std::string& prefix) {
  return slurp(prefix + ".bin") + slurp(prefix + ".idx") + slurp(prefix + ".meta.json");
}

// Starts an encoding in a process of its own and kills it after this time; returns whether it came to its end before.
bool killed_after(std::chrono::microseconds time, const std::string& prefix, const std::vector<std::string>& files,
                  const Tokenizer& tokenizer) {
  const pid_t child = test::fork_or_throw();
  if (child == 0) {
    try {
      encode_corpus(prefix, files, tokenizer, 2);
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(1);
    }
    ::_exit(0);
  }
  std::this_thread::sleep_for(time);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
  // Or it was killed when it had done all.
  return WIFEXITED(status) ||
         (std::filesystem::exists(prefix + ".idx") && !std::filesystem::exists(prefix + ".encode.part"));
}

TEST(EncodeResume, GivesTheSameBytesForAnyNumberOfWorkers) {
  const TempDir dir;
  const std::vector<std::string> files = spill_corpus(dir);
  const ByteTokenizer bytes;
  const PairTokenizer pairs;
  for (const Tokenizer* tokenizer : std::initializer_list<const Tokenizer*>{&bytes, &pairs}) {
    const std::string kind(tokenizer->name());
    for (const int workers : {1, 2, 5})
      encode_corpus(dir / (kind + std::to_string(workers)), files, *tokenizer, workers);
    EXPECT_TRUE(all_of(dir / (kind + "2")) == all_of(dir / (kind + "1")));
    EXPECT_TRUE(all_of(dir / (kind + "5")) == all_of(dir / (kind + "1")));
  }
}

TEST(EncodeResume, GivesTheSameBytesAfterAnyKill) {
  const ByteTokenizer bytes;
  const PairTokenizer pairs;
  std::mt19937 random(1);
  for (const Tokenizer* tokenizer : std::initializer_list<const Tokenizer*>{&bytes, &pairs}) {
    const TempDir dir;
    const std::vector<std::string> files = spill_corpus(dir);
    const Clock::time_point begin = Clock::now();
    EXPECT_EQ(encode_corpus(dir / "whole", files, *tokenizer, 2).num_binary_files, 1);
    const auto whole_time = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
    const std::string expected = all_of(dir / "whole");
    for (int round = 0; round < 4; ++round) {
      const std::string prefix = dir / ("killed" + std::to_string(round));
      bool done = false;
      for (int kill = 0; kill < 5 && !done; ++kill) {
        const auto longest = static_cast<std::uint64_t>(whole_time.count()) * (kill % 2 == 0 ? 1 : 2);
        done = killed_after(std::chrono::microseconds(random() % longest), prefix, files, *tokenizer);
        const bool has_index = std::filesystem::exists(prefix + ".idx");
        EXPECT_TRUE(!has_index || all_of(prefix) == expected) << "an index beside something else";
      }
      if (!done) encode_corpus(prefix, files, *tokenizer, 1);
      EXPECT_TRUE(all_of(prefix) == expected) << tokenizer->name() << " round " << round;
    }
    for (const std::string& name : dir.list()) EXPECT_THAT(name, testing::Not(testing::EndsWith(".part")));
  }
}

// Runs until a state is saved, and dies.
void leave_parts(const std::string& prefix, const std::vector<std::string>& files, const Tokenizer& tokenizer) {
  const pid_t child = ::fork();
  if (child == 0) {
    EncodeOptions options;
    options.read.split_on = "%";
    options.skip_bad_lines = true;
    options.save_every_bytes = 1;
    int calls = 0;
    options.progress = [&](std::int64_t, std::int64_t) {
      if (++calls == 2) ::_exit(0);
    };
    encode(prefix, files, tokenizer, note_of(tokenizer, std::string(tokenizer.name()), {}), options);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
}

TEST(EncodeResume, BeginsAnewWhereInputOrOptionsAreOthers) {
  const TempDir dir;
  const ByteTokenizer tokenizer;
  const std::vector<std::string> files = spill_corpus(dir);
  leave_parts(dir / "out", files, tokenizer);
  EXPECT_THAT(dir.list(), testing::IsSupersetOf({"out.bin.part", "out.encode.part", "out.sequences.part"}));
  spill(dir / "a", "another text\n");
  encode_corpus(dir / "out", files, tokenizer, 2);
  encode_corpus(dir / "whole", files, tokenizer, 2);
  EXPECT_TRUE(all_of(dir / "out") == all_of(dir / "whole"));

  leave_parts(dir / "again", files, tokenizer);
  EncodeOptions options;
  options.read.split_on = "nothing";
  options.skip_bad_lines = true;
  const Note note = note_of(tokenizer, "byte", {});
  encode(dir / "again", files, tokenizer, note, options);
  encode(dir / "fresh", files, tokenizer, note, options);
  EXPECT_TRUE(all_of(dir / "again") == all_of(dir / "fresh"));

  // Parts that lack what the state says.
  for (const char* part : {".bin.part", ".sequences.part", ".encode.part"}) {
    leave_parts(dir / "cut", files, tokenizer);
    std::filesystem::resize_file(dir / "cut" + part, 10);
    encode_corpus(dir / "cut", files, tokenizer, 2);
    EXPECT_TRUE(all_of(dir / "cut") == all_of(dir / "whole")) << part;
    for (const char* suffix : {".bin", ".idx"}) std::filesystem::remove(dir / "cut" + suffix);
  }
}

TEST(EncodeResume, RefusesPartsThatAreNotItsOwn) {
  const TempDir dir;
  const ByteTokenizer tokenizer;
  spill(dir / "text", "text");
  spill(dir / "precious", "precious");
  const auto refusal = [&] {
    const Error error = thrown_by([&] { encode_corpus(dir / "out", {dir / "text"}, tokenizer, 1); });
    EXPECT_EQ(error.kind(), "data.output");
    EXPECT_EQ(error.blame(), Blame::user);
    EXPECT_EQ(slurp(dir / "precious"), "precious");
    return error.message();
  };
  for (const std::string part : {"out.bin.part", "out.sequences.part", "out.idx.part", "out.meta.json.part"}) {
    std::filesystem::create_symlink(dir / "precious", dir / part);
    EXPECT_THAT(refusal(), testing::HasSubstr(part + ": it is a symbolic link"));
    std::filesystem::remove(dir / part);
    std::filesystem::create_hard_link(dir / "precious", dir / part);
    EXPECT_THAT(refusal(), testing::HasSubstr(part + ": it has another name, too"));
    std::filesystem::remove(dir / part);
    std::filesystem::create_directory(dir / part);
    thrown_by([&] { encode_corpus(dir / "out", {dir / "text"}, tokenizer, 1); });
    std::filesystem::remove(dir / part);
  }
  std::filesystem::create_symlink(dir / "precious", dir / "out.encode.part");
  refusal();
  std::filesystem::remove(dir / "out.encode.part");
  if (::geteuid() == 0) {
    spill(dir / "out.bin.part", "");
    ASSERT_EQ(::chown((dir / "out.bin.part").c_str(), 65'534, 65'534), 0);
    EXPECT_THAT(refusal(), testing::HasSubstr("it belongs to user 65534"));
    std::filesystem::remove(dir / "out.bin.part");
  }
  {
    const TokenWriter other(dir / "out", TokenType::u16);
    EXPECT_THAT(refusal(), testing::HasSubstr("another process writes it"));
  }
  EXPECT_EQ(encode_corpus(dir / "out", {dir / "text"}, tokenizer, 1).num_documents, 1);
}

}  // namespace
}  // namespace ms::data
