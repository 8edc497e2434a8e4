#include "comm/control.h"

#include <gtest/gtest.h>

namespace ms::comm {
namespace {

Error heard(const Error& error) { return std::get<Error>(parse_control(stop_message(error)).value()); }

TEST(Control, RoundTripsErrors) {
  const Error plain("storage.write", Blame::storage, "cannot write x:\nno space left", "make room");
  const Error full =
      plain.with_operation("barrier, operation 3 of group dp[pp 0 tp 1]").with_rank(12287).with_step(1LL << 40);
  for (const Error& error : {plain, full, Error("", Blame::bug, "")}) {
    const Error got = heard(error);
    EXPECT_EQ(got.kind(), error.kind());
    EXPECT_EQ(got.blame(), error.blame());
    EXPECT_EQ(got.message(), error.message());
    EXPECT_EQ(got.hint(), error.hint());
    EXPECT_EQ(got.operation(), error.operation());
    EXPECT_EQ(got.rank(), error.rank());
    EXPECT_EQ(got.step(), error.step());
  }
}

TEST(Control, TruncatesLongTexts) {
  const std::string text(100 << 10, 'x');
  const Error error = Error("a", Blame::peer, text, text).with_operation(text);
  EXPECT_LE(stop_message(error).size(), kMaxControlBytes);
  EXPECT_GT(heard(error).message().size(), 4000U);
  EXPECT_EQ(heard(Error("a", Blame::peer, "message", std::string("hi\0nt", 5))).message(), "message");
}

TEST(Control, RoundTripsValues) {
  const std::string bytes("\0A\0\n", 4);
  const auto got = std::get<PublishedValue>(parse_control(value_message("a key", bytes)).value());
  EXPECT_EQ(got.key, "a key");
  EXPECT_EQ(got.value, bytes);
}

TEST(Control, RoundTripsQuestionsAndAnswers) {
  const auto question = std::get<Question>(parse_control(question_message({kNoGroup, ~0ULL, 7500})).value());
  EXPECT_EQ(question.group, kNoGroup);
  EXPECT_EQ(question.sequence, ~0ULL);
  EXPECT_EQ(question.old_ms, 7500);
  Answer answer{{12, 1ULL << 40}, {.issued = true, .waits = {}}};
  for (int i = 0; i < 2; ++i) {
    const auto got = std::get<Answer>(parse_control(answer_message(answer)).value());
    EXPECT_EQ(got.question.group, 12);
    EXPECT_EQ(got.question.sequence, 1ULL << 40);
    EXPECT_EQ(got.report.issued, answer.report.issued);
    EXPECT_EQ(got.report.busy, answer.report.busy);
    ASSERT_EQ(got.report.waits.size(), answer.report.waits.size());
    for (std::size_t k = 0; k < got.report.waits.size(); ++k) {
      EXPECT_EQ(got.report.waits[k].peer, 12287);
      EXPECT_EQ(got.report.waits[k].group, 3);
      EXPECT_EQ(got.report.waits[k].sequence, k);
      EXPECT_EQ(got.report.waits[k].what, k == 0 ? "barrier" : "");
      EXPECT_EQ(got.report.waits[k].recent, k == 1);
    }
    answer.report = {
        .issued = false, .waits = {{12287, 3, 0, "barrier"}, {12287, 3, 1, "", true}}, .busy = "waits for data"};
  }
  answer.report.waits.assign(Inquiry::kMostWaits, {1, 2, 3, std::string(100 << 10, 'x'), true});
  EXPECT_LE(answer_message(answer).size(), kMaxControlBytes);
}

TEST(Control, RefusesMalformedMessages) {
  using namespace std::string_literals;
  for (const std::string& text : {""s,
                                  "x"s,
                                  "A"s,
                                  "Akind\0"s,
                                  "Akind\0007\0\0\0"s,
                                  "Akind\0x\0\0\0\0\0text"s,
                                  "Akind\00099\0\0\0\0\0text"s,
                                  "Akind\0001\0x\0\0\0\0text"s,
                                  "Akind\0001\0\0\0\0x\0text"s,
                                  "Skey"s,
                                  "Q"s,
                                  "Q1\0"s,
                                  "Q1\0x\0"s,
                                  "Q1\0-1\0"s,
                                  "Q1\0002\0"s,
                                  "Q1\0002\0003\0more"s,
                                  "R1\0002\0003\0"s,
                                  "R1\0002\0003\0001\0"s,
                                  "R1\0002\0003\0001\0busy\0003\0004\0005\0what"s,
                                  "R1\0002\0003\0001\0busy\0003\0"s}) {
    EXPECT_FALSE(parse_control(text)) << text;
  }
}

}  // namespace
}  // namespace ms::comm
