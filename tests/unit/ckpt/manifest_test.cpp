#include "ckpt/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "base/rng.h"
#include "format_fixture.h"
#include "support/errors.h"

namespace ms::ckpt {
namespace {

using namespace format_fixture;  // NOLINT: a test's own fixture
using testing::HasSubstr;
using Json = nlohmann::ordered_json;

void expect_same(const FileEntry& a, const FileEntry& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.size_bytes, b.size_bytes);
  EXPECT_EQ(a.hashes, b.hashes);
  EXPECT_EQ(a.pieces, b.pieces);
}

void expect_same(const Manifest& a, const Manifest& b) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.run, b.run);
  EXPECT_EQ(a.created, b.created);
  EXPECT_EQ(a.version, b.version);
  EXPECT_EQ(a.config, b.config);
  EXPECT_EQ(std::tie(a.dp, a.pp, a.tp, a.chunks, a.zero), std::tie(b.dp, b.pp, b.tp, b.chunks, b.zero));
  EXPECT_EQ(a.dtype, b.dtype);
  EXPECT_EQ(a.data.samples, b.data.samples);
  EXPECT_EQ(a.data.seed, b.data.seed);
  EXPECT_EQ(a.data.source, b.data.source);
  EXPECT_EQ(a.data.chain, b.data.chain);
  EXPECT_EQ(a.data.rollbacks, b.data.rollbacks);
  EXPECT_EQ(a.rng, b.rng);
  EXPECT_EQ(a.has_optimizer, b.has_optimizer);
  EXPECT_EQ(a.matmul_choices, b.matmul_choices);
  ASSERT_EQ(a.files.size(), b.files.size());
  for (std::size_t i = 0; i < a.files.size(); ++i) expect_same(a.files[i], b.files[i]);
}

// A document with the last line that belongs to it: `body` is an object whose closing brace is left out.
std::string sealed(std::string body) {
  body += ",\n";
  return body + fmt::format("  \"xxh64\": \"{:016x}\"}}\n", xxh64(body));
}
std::string sealed(Json json) {
  json.erase("xxh64");
  std::string text = json.dump();
  text.pop_back();
  return sealed(std::move(text));
}
Json good_json() { return Json::parse(to_json(some_manifest())); }

TEST(Manifest, RoundTrips) {
  Manifest manifest = some_manifest();
  expect_same(parse_manifest(to_json(manifest), "m"), manifest);
  manifest.has_optimizer = false;
  manifest.matmul_choices = "library = some GPU\n8x8x8 = 1.2\n";
  manifest.files.clear();
  manifest.config = std::string("a\0\x1f\"\\\n\xc3\xa4", 8);
  manifest.zero = 0;
  manifest.step = std::int64_t{1} << 53;
  manifest.data = {};
  manifest.data.samples = std::int64_t{1} << 53;
  manifest.data.chain = "0123456789abcdef";
  manifest.data.rollbacks = 3;
  expect_same(parse_manifest(to_json(manifest), "m"), manifest);
}

TEST(Manifest, IsForPeopleToo) {
  const std::string text = to_json(some_manifest());
  EXPECT_THAT(
      text, testing::StartsWith("{\n  \"format\": \"ms-checkpoint\",\n  \"format_version\": 1,\n  \"step\": 1200,\n"));
  EXPECT_THAT(text, HasSubstr("\n    {\"name\":\"rank-00001.h5\","));
  const std::size_t last = text.rfind('\n', text.size() - 2) + 1;
  EXPECT_EQ(text.substr(last), "  \"xxh64\": \"" + hash_hex(xxh64(std::string_view(text).substr(0, last))) + "\"}\n");
  const Json json = Json::parse(text);
  EXPECT_EQ(json["layout"]["pp"], 3);
  EXPECT_EQ(json["data"]["seed"], UINT64_MAX);
  // A slice that four states share is there once.
  EXPECT_EQ(json["files"][0]["pieces"].size(), 8U);
  EXPECT_EQ(json["files"][0]["slices"].size(), 4U);
  EXPECT_EQ(json["files"][0]["slices"][2], Json::parse(R"(["layers.0.attn.q.weight",64,32,16,16,0,32,37,301])"));
}

TEST(Manifest, EntriesAreMadeApart) {
  const Manifest manifest = some_manifest();
  Manifest frame = manifest;
  frame.files.clear();
  EXPECT_EQ(to_json(frame, {entry_to_json(manifest.files[0]), entry_to_json(manifest.files[1])}), to_json(manifest));
}

TEST(Manifest, CountsBytes) {
  EXPECT_EQ(some_manifest().size_bytes(), some_manifest().files[0].size_bytes + some_manifest().files[1].size_bytes);
  const Manifest empty;
  EXPECT_EQ(empty.size_bytes(), 0);
}

TEST(Manifest, AnEntryIsNoLongerThanItsBound) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::vector<Piece> pieces;
    for (std::uint64_t i = 0; i < seed % 23; ++i) {
      const auto rows = static_cast<std::int64_t>(1 + uniform_below(seed, 1, i, 1'000'000));
      const std::string name = "layers." + std::to_string(i / 3);
      pieces.push_back(piece(static_cast<State>(i % 4), tensor::DType::f32, whole(name, rows, 7)));
    }
    const FileEntry entry = entry_of("rank-00007.h5", pieces);
    const std::size_t bound = entry_json_bound(entry.name, pieces, entry.size_bytes);
    const std::size_t size = entry_to_json(entry).size();
    EXPECT_LE(size, bound);
    EXPECT_LE(bound, size + 20 * pieces.size() + 20);
  }
}

TEST(Manifest, WhatIsNotUtf8IsReplaced) {
  Manifest manifest = some_manifest();
  manifest.config = "# caf\xe9\n";
  EXPECT_EQ(parse_manifest(to_json(manifest), "m").config, "# caf\xef\xbf\xbd\n");
}

TEST(Manifest, EveryWrongByteIsFound) {
  const std::string good = to_json(some_manifest());
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const int flip : {0x01, 0x20, 0x80}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      const Error error = thrown_by([&] { parse_manifest(bad, "dir/manifest.json"); });
      ASSERT_EQ(error.kind(), "ckpt.manifest") << "byte " << i << " ^ " << flip;
      ASSERT_EQ(error.blame(), Blame::storage);
    }
  }
}

TEST(Manifest, EveryTruncationAndEveryAdditionIsFound) {
  const std::string good = to_json(some_manifest());
  for (std::size_t size = 0; size < good.size(); ++size) {
    ASSERT_EQ(thrown_by([&] { parse_manifest(good.substr(0, size), "m"); }).kind(), "ckpt.manifest") << size;
  }
  for (const std::string& bad : {good + "\n", good + good, " " + good, std::string()}) {
    EXPECT_EQ(thrown_by([&] { parse_manifest(bad, "m"); }).kind(), "ckpt.manifest");
  }
}

// Documents that are whole, with a hash that is right, and wrong all the same.
TEST(Manifest, RefusesWhatCannotBe) {
  struct Row {
    const char* at;  // a JSON pointer
    Json value;      // null: the member is taken away
    const char* says;
  };
  const Json huge = Json::parse("18446744073709551616");
  const Row rows[] = {
      {"/format", "other", "format is not that of a checkpoint"},
      {"/format", nullptr, "format is missing"},
      {"/format_version", nullptr, "format_version is missing"},
      {"/format_version", 0, "format_version is out of range"},
      {"/format_version", "1", "format_version is not a whole number"},
      {"/format_version", Json::array({1}), "format_version is not a whole number"},
      {"/step", nullptr, "step is missing"},
      {"/step", -1, "step is out of range"},
      {"/step", (std::int64_t{1} << 53) + 1, "step is out of range"},
      {"/step", 1.0, "step is not a whole number"},
      {"/step", INT64_MAX + std::uint64_t{1}, "step is out of range"},
      {"/step", huge, "step is not a whole number"},
      {"/step", true, "step is not a whole number"},
      {"/run", "00C0FFEE00C0FFEE", "run is not 16 hexadecimal digits"},
      {"/run", "", "run is not 16"},
      {"/run", 7, "run is not a text"},
      {"/created", "2026-01-31 12:00:00", "created is not a time"},
      {"/created", "2026-01-31T12:00:00+", "created is not a time"},
      {"/version", nullptr, "version is missing"},
      {"/config", Json::object(), "config is not a text"},
      {"/layout", nullptr, "layout is missing"},
      {"/layout", 8, "dp is missing"},
      {"/layout/dp", 0, "dp is out of range"},
      {"/layout/pp", std::int64_t{1} << 31, "pp is out of range"},
      {"/layout/tp", INT32_MAX, "chunks, is out of range"},
      {"/layout/tp", nullptr, "tp is missing"},
      {"/layout/chunks", -5, "chunks is out of range"},
      {"/layout/zero", 4, "zero is out of range"},
      {"/dtype", "fp16", "dtype is neither fp32 nor bf16"},
      {"/data/samples", -1, "samples is out of range"},
      {"/data/samples", (std::int64_t{1} << 53) + 1, "samples is out of range"},
      {"/data/samples", INT64_MAX, "samples is out of range"},
      {"/data/seed", -1, "seed is not a whole number from 0"},
      {"/data/seed", huge, "seed is not a whole number from 0"},
      {"/data/source", nullptr, "source is missing"},
      {"/data/chain", "0123", "chain is not 16 hexadecimal digits"},
      {"/data/chain", 7, "chain is not a text"},
      {"/data/rollbacks", -1, "rollbacks is out of range"},
      {"/rng", "", "rng is empty"},
      {"/has_optimizer", 1, "has_optimizer is neither true nor false"},
      {"/files", nullptr, "files is missing"},
      {"/files", Json::object({{"a", Json::object()}}), "name is missing"},
      {"/files", Json::object(), "files is not a list"},
      {"/files/0", 3, "files has an entry that is not a file's"},
      {"/files/0", Json::array({Json::object()}), "files has an entry that is not a file's"},
      {"/files/0", Json::object(), "name is missing"},
      {"/files/0/name", "../rank-00000.h5", "a file is called '../rank-00000.h5', which is not a plain name"},
      {"/files/0/name", "a/b", "not a plain name"},
      {"/files/0/name", "..", "not a plain name"},
      {"/files/0/name", "", "not a plain name"},
      {"/files/0/name", "manifest.json", "not a plain name"},
      {"/files/0/name", std::string("a\0.h5", 5), "not a plain name"},
      {"/files/0/name", std::string(256, 'a'), "not a plain name"},
      {"/files/0/name", 5, "name is not a text"},
      {"/files/0/name", "rank-00001.h5", "the file rank-00001.h5 is there twice"},
      {"/files/0/size", -1, "rank-00000.h5: size is out of range"},
      {"/files/0/size", INT64_MAX, "size is out of range"},
      {"/files/0/size", std::int64_t{1} << 40, "1 hashes for 65536 blocks"},
      {"/files/0/size", 0, "1 hashes for 0 blocks"},
      {"/files/0/size", 8192, "exp_avg layers.0.attn.q.weight lies beyond its end"},
      {"/files/0/xxh64", Json::array(), "0 hashes for 1 blocks"},
      {"/files/0/xxh64", Json::array({"0123456789abcdef", "0123456789abcdef"}), "2 hashes for 1 blocks"},
      {"/files/0/xxh64/0", "0123456789abcde", "a hash is not 16"},
      {"/files/0/xxh64/0", "0x23456789abcdef", "a hash is not 16"},
      {"/files/0/xxh64/0", 81985529216486895, "a hash is not a text"},
      {"/files/0/slices", nullptr, "slices is missing"},
      {"/files/0/slices", Json::object(), "slices is not a list"},
      {"/files/0/slices/0", Json::array(), "a slice is not a name and eight numbers"},
      {"/files/0/slices/0/9", 1, "a slice is not a name and eight numbers"},
      {"/files/0/slices/0/0", "a/b", "name is not one"},
      {"/files/0/slices/0/1", -64, "a slice's number is out of range"},
      {"/files/0/slices/0/1", 0, "shape 0 x 32"},
      {"/files/0/slices/0/2", INT64_MAX, "has the shape"},
      {"/files/0/slices/0/1", (std::int64_t{1} << 45) + 1, "has the shape 35184372088833 x 32"},
      {"/files/0/slices/0/3", 49, "16 rows from 49"},
      {"/files/0/slices/0/4", 0, "slice of 0 rows"},
      {"/files/0/slices/0/8", 513, "512 elements, of which 0 to 513"},
      {"/files/0/slices/0/8", 0, "of which 0 to 0"},
      {"/files/0/pieces", nullptr, "pieces is missing"},
      {"/files/0/pieces/0", "weight", "a piece is not a state"},
      {"/files/0/pieces/0/4", 0, "a piece is not a state"},
      {"/files/0/pieces/0/0", "gradient", "a piece's state is not known"},
      {"/files/0/pieces/0/1", "f64", "a piece's type is neither f32 nor bf16"},
      {"/files/0/pieces/0/2", 4, "a piece's slice is out of range"},
      {"/files/0/pieces/0/2", -1, "a piece's slice is out of range"},
      {"/files/0/pieces/0/3", -64, "a piece's offset is out of range"},
      {"/files/0/pieces/0/3", 4100, "not a multiple of 64"},
      {"/files/0/pieces/0/3", std::int64_t{1} << 62, "weight layers.0.attn.q.weight lies beyond its end"},
      {"/files/0/pieces/0/3", 4160, "two pieces share byte"},
  };
  for (const Row& row : rows) {
    Json json = good_json();
    const Json::json_pointer at(row.at);
    if (row.value.is_null()) {
      json.at(at.parent_pointer()).erase(at.back());
    } else {
      json[at] = row.value;
    }
    const Error error = thrown_by([&] { parse_manifest(sealed(json), "dir/manifest.json"); });
    EXPECT_EQ(error.kind(), "ckpt.manifest") << row.at << " " << row.value;
    EXPECT_EQ(error.blame(), Blame::storage);
    EXPECT_THAT(error.message(), testing::StartsWith("dir/manifest.json: ")) << row.at;
    EXPECT_THAT(error.message(), HasSubstr(row.says)) << row.at << " " << row.value;
  }
}

TEST(Manifest, RefusesWhatIsNoDocument) {
  for (const char* body : {"", "{", "[", "1", "{\"format\": \"ms-checkpoint\"", "{\"a\":}", "{} {"}) {
    EXPECT_EQ(thrown_by([&] { parse_manifest(sealed(std::string(body)), "m"); }).kind(), "ckpt.manifest") << body;
  }
  for (const std::size_t depth : {std::size_t{16}, std::size_t{200'000}}) {
    for (const std::string& end : {std::string(), std::string(depth, ']')}) {
      const std::string deep = "{\"a\":" + std::string(depth, '[') + end;
      const Error error = thrown_by([&] { parse_manifest(sealed(deep), "m"); });
      EXPECT_EQ(error.kind(), "ckpt.manifest");
      EXPECT_EQ(error.message(), "m: nests more than 16 deep");
    }
  }
  std::string twice = good_json().dump();
  twice.pop_back();
  EXPECT_THAT(thrown_by([&] { parse_manifest(sealed(twice + ",\"step\":1"), "m"); }).message(),
              HasSubstr("the key 'step' is there twice"));
}

TEST(Manifest, LeavesUnknownKeysAside) {
  Json json = good_json();
  json["weather"] = Json::array({Json::object({{"name", "x"}})});
  json["layout"]["cp"] = 2;
  json["data"]["more"] = "x";
  json["files"][0]["mirror"] = Json::object({{"name", "x"}});
  expect_same(parse_manifest(sealed(json), "m"), some_manifest());
}

TEST(Manifest, BracketsInTextsDoNotNest) {
  Manifest manifest = some_manifest();
  manifest.config = "\\\"" + std::string(100, '[');
  expect_same(parse_manifest(to_json(manifest), "m"), manifest);
}

TEST(Manifest, ANewerFormatIsTheUsersToSolve) {
  Json json = good_json();
  json["format_version"] = kFormatVersion + 1;
  json["files"] = Json::array({Json::object({{"of", "another kind"}})});
  const Error error = thrown_by([&] { parse_manifest(sealed(json), "dir/manifest.json"); });
  EXPECT_EQ(error.kind(), "ckpt.version");
  EXPECT_EQ(error.blame(), Blame::user);
  EXPECT_EQ(error.message(), "dir/manifest.json: is of format version 2, this program knows versions up to 1");
}

// Anything at all behind a hash that is right: read or refused, never a crash.
TEST(Manifest, Fuzz) {
  std::string good = good_json().dump();
  const std::string tail = ",\"xxh64\"";
  good.resize(good.rfind(tail));
  int refused = 0;
  for (std::uint64_t round = 0; round < 4000; ++round) {
    std::string body = good;
    const std::uint64_t changes = 1 + uniform_below(1, round, 0, 4);
    for (std::uint64_t i = 1; i <= 3 * changes; i += 3) {
      const std::size_t at = uniform_below(1, round, i, body.size());
      const std::size_t from = uniform_below(1, round, i + 1, body.size());
      switch (uniform_below(1, round, i + 2, 4)) {
        case 0: body[at] = static_cast<char>(random_u64(1, round, i + 100)); break;
        case 1: body.erase(at, 1 + from % 40); break;
        case 2: body.insert(at, body.substr(from, 1 + at % 40)); break;
        default: body[at] = body[from];
      }
      if (body.empty()) body = "{";
    }
    const std::optional<Error> error = test::error_from([&] { parse_manifest(sealed(body), "m"); });
    if (!error) continue;
    ++refused;
    ASSERT_TRUE(error->kind() == "ckpt.manifest" || error->kind() == "ckpt.version") << error->message();
  }
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace ms::ckpt
