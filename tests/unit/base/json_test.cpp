#include "base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace ms {
namespace {

std::string refusal(auto read) {
  try {
    read();
  } catch (const JsonError& error) { return error.what(); }
  return "";
}

TEST(Json, ListsOfPairsAreObjectsAndOtherListsArrays) {
  EXPECT_EQ((Json{{"a", 1}, {"b", {0, 4}}}).dump(), R"({"a":1,"b":[0,4]})");
  EXPECT_EQ((Json{"a", 1}).dump(), R"(["a",1])");
  EXPECT_EQ((Json{{1, 2}}).dump(), "[[1,2]]");
  EXPECT_EQ(Json().dump(), "null");
  EXPECT_EQ(Json::array().dump(2), "[]");
  EXPECT_EQ(Json::object().dump(2), "{}");
}

TEST(Json, MembersStayInTheOrderInWhichTheyWereAdded) {
  Json json;
  json["z"] = 1;
  json["a"] = {{"x", true}};
  json["z"] = 2;
  json.update({{"m", nullptr}});
  EXPECT_EQ(json.dump(), R"({"z":2,"a":{"x":true},"m":null})");
  EXPECT_EQ(json.size(), 3u);
}

TEST(Json, TakesRangesAndMaps) {
  EXPECT_EQ(Json(std::vector<int>{1, 2}).dump(), "[1,2]");
  EXPECT_EQ(Json(std::map<std::string, double>{{"b", 0.5}, {"a", 2.0}}).dump(), R"({"a":2.0,"b":0.5})");
  Json list;
  list.push_back({{"name", "x"}});
  list.back()["more"] = std::string("y");
  EXPECT_EQ(list.dump(), R"([{"name":"x","more":"y"}])");
}

// Other programs read what is printed, and files are compared byte by byte.
TEST(Json, PrintsAsTheLibraryDoes) {
  const std::string text = R"({"a": [1, -2, 18446744073709551615, -9223372036854775808, 0.1, 1e300, 1e-7, 3.0, -0.0],
      "b": {}, "c": [], "d": {"e": [[], {"f": null}]}, "\u00e9\n\"": "x\t\\ \u20ac\u0001/", "t": [true, false]})";
  const Json ours = Json::parse(text);
  const auto theirs = nlohmann::ordered_json::parse(text);
  EXPECT_EQ(ours.dump(), theirs.dump());
  EXPECT_EQ(ours.dump(2), theirs.dump(2));
  EXPECT_EQ(ours.dump(0), theirs.dump(0));
  EXPECT_EQ(ours.dump_ascii(), theirs.dump(-1, ' ', true));
}

TEST(Json, PrintsWhatJsonCannotSay) {
  EXPECT_EQ((Json{NAN, INFINITY, 1}).dump(), "[null,null,1]");
  EXPECT_EQ(Json("a\xff").dump(), "\"a\xef\xbf\xbd\"");
}

TEST(Json, ReadsTypedValues) {
  const Json json = Json::parse(R"({"n": 7, "m": -7, "x": 2, "s": "text", "b": true, "l": ["a", "b"], "o": {"k": 3}})");
  EXPECT_EQ(json.get<int>("n"), 7);
  EXPECT_EQ(json.get<std::int64_t>("m"), -7);
  EXPECT_EQ(json.get<double>("x"), 2.0);
  EXPECT_EQ(json.get<std::string>("s"), "text");
  EXPECT_TRUE(json.get<bool>("b"));
  EXPECT_EQ(json.get<std::vector<std::string>>("l"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ((json.get<std::map<std::string, int>>("o")), (std::map<std::string, int>{{"k", 3}}));
  EXPECT_TRUE(json.at("n").is_number_unsigned());
  EXPECT_FALSE(json.at("m").is_number_unsigned());
  EXPECT_EQ(json.find("none"), nullptr);
}

TEST(Json, ErrorsNameTheValueAndWhatIsWrong) {
  const Json json =
      Json::parse(R"({"n": 300, "m": -1, "x": 2.5, "s": "text", "l": [1, "2"], "h": 18446744073709551615})");
  EXPECT_EQ(refusal([&] { json.at("none"); }), "'none' is missing");
  EXPECT_EQ(refusal([&] { json.get<std::int8_t>("n"); }), "n is out of range");
  EXPECT_EQ(refusal([&] { json.get<unsigned>("m"); }), "m is out of range");
  EXPECT_EQ(refusal([&] { json.get<std::int64_t>("h"); }), "h is out of range");
  EXPECT_EQ(refusal([&] { json.get<int>("x"); }), "x is not a whole number");
  EXPECT_EQ(refusal([&] { json.get<double>("s"); }), "s is not a number");
  EXPECT_EQ(refusal([&] { json.get<std::string>("n"); }), "n is not a text");
  EXPECT_EQ(refusal([&] { json.get<bool>("n"); }), "n is neither true nor false");
  EXPECT_EQ(refusal([&] { json.get<std::vector<int>>("l"); }), "l is not a whole number");
  EXPECT_EQ(refusal([&] { json.at("l").at(2); }), "is not a list with element 2");
  EXPECT_EQ(refusal([&] { json.at("s").items(); }), "is not an object");
  EXPECT_EQ(refusal([&] { json.at("s").begin(); }), "is not a list");
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "nul", "[1] 2", "{\"a\": 1e999}", "\"\xff\""}) {
    std::string problem;
    EXPECT_FALSE(Json::try_parse(text, {}, &problem)) << text;
    EXPECT_EQ(problem.rfind("is not JSON: ", 0), 0u) << problem;
    EXPECT_EQ(refusal([&] { Json::parse(text); }), problem);
  }
}

TEST(Json, RefusesWhatNestsTooDeeply) {
  const JsonOptions options{.max_depth = 3};
  EXPECT_TRUE(Json::try_parse("[[{}]]", options));
  EXPECT_EQ(refusal([&] { Json::parse("[[{\"a\": []}]]", options); }), "nests more than 3 deep");
  EXPECT_EQ(refusal([&] { Json::parse(std::string(1 << 20, '[')); }), "nests more than 64 deep");
  EXPECT_TRUE(Json::try_parse("[[\"[[[[\"]]", options));
}

TEST(Json, TellsOfKeysThatAnObjectHasTwice) {
  std::string keys;
  const JsonOptions options{
      .on_duplicate = [&](std::size_t depth, const std::string& key) { keys += key + std::to_string(depth) + " "; }};
  const Json json = Json::parse(R"({"a": 1, "b": {"a": 1, "a": 2}, "c": {"a": 3}, "a": 4})", options);
  EXPECT_EQ(keys, "a2 a1 ");
  EXPECT_EQ(json.dump(), R"({"a":4,"b":{"a":2},"c":{"a":3}})");
}

TEST(Json, DropsValuesThatTheCallerDoesNotKeep) {
  std::string dropped;
  const JsonOptions options{.keep = [&](std::size_t depth, const std::string& top_key, const Json& value) {
    if (depth != 2 || top_key != "files") return true;
    dropped += value.dump();
    return false;
  }};
  const Json json = Json::parse(R"({"files": [{"n": [1]}, {"n": [2]}], "others": [3]})", options);
  EXPECT_EQ(json.dump(), R"({"files":[],"others":[3]})");
  EXPECT_EQ(dropped, R"({"n":[1]}{"n":[2]})");
}

TEST(Json, NumbersCompareByValue) {
  EXPECT_EQ(Json(1), Json(1.0));
  EXPECT_EQ(Json(1u), Json(1));
  EXPECT_FALSE(Json(-1) == Json(18446744073709551615u));
  EXPECT_FALSE(Json(true) == Json(1));
  EXPECT_EQ(Json::parse("{\"a\": [1]}"), (Json{{"a", Json{1}}}));
  EXPECT_EQ(Json("x"), std::string("x"));
}

}  // namespace
}  // namespace ms
