// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model_place.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace continuo::worker {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ModelPlaceTest : public ::testing::Test {
 protected:
  ModelPlaceTest() { fs::create_directories(dir_); }
  ~ModelPlaceTest() override { fs::remove_all(dir_); }

  std::string Write(const std::string& name, const std::string& text) {
    const fs::path path = dir_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  static ModelPlace Place(const std::string& path) {
    const auto place = FindModelPlace(path);
    EXPECT_TRUE(place.ok()) << place.status();
    return place.value_or(ModelPlace{});
  }
  static std::string ErrorOf(const std::string& path) {
    return std::string(FindModelPlace(path).status().message());
  }

  const fs::path dir_ =
      fs::path(::testing::TempDir()) /
      absl::StrCat("place_", ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(ModelPlaceTest, FilesAndFoldersAreThemselves) {
  const std::string file = Write("some-Q4_K_M.gguf", "GGUF");
  EXPECT_EQ(Place(file).path, file);
  EXPECT_EQ(Place(file).name, "some-Q4_K_M");
  EXPECT_EQ(Place(dir_.string() + "/").name, dir_.filename());
  EXPECT_EQ(Place("/nothing/here").path, "/nothing/here");
  EXPECT_EQ(Place("/nothing/here").name, "here");
  // A small file that is no manifest is left to the reader of models.
  EXPECT_EQ(Place(Write("x.json", "{\"layers\": 3}")).name, "x");
  EXPECT_EQ(Place(Write("y.json", "{")).name, "y");
}

TEST_F(ModelPlaceTest, AModelOfAHubIsNamedByItsRepository) {
  EXPECT_EQ(Place("hf://org/name@v1:Q4_0").path, "hf://org/name@v1:Q4_0");
  EXPECT_EQ(Place("hf://org/name@v1:Q4_0").name, "org/name");
  EXPECT_THAT(ErrorOf("hf://org"), HasSubstr("hf://org/name[@revision][:file]"));
}

TEST_F(ModelPlaceTest, ACachesSnapshotIsThatOfMain) {
  const std::string cache = (dir_ / "models--org--tiny").string();
  Write("models--org--tiny/snapshots/abc/config.json", "{}");
  EXPECT_EQ(Place(cache).path, fs::canonical(cache + "/snapshots/abc"));
  EXPECT_EQ(Place(cache).name, "org/tiny");
  EXPECT_EQ(Place(cache + "/snapshots/abc").name, "org/tiny");
  Write("models--org--tiny/snapshots/def/config.json", "{}");
  EXPECT_THAT(ErrorOf(cache), HasSubstr("refs/main leads to none of its snapshots"));
  Write("models--org--tiny/refs/main", "def\n");
  EXPECT_EQ(Place(cache).path, fs::canonical(cache + "/snapshots/def"));
  Write("models--org--tiny/refs/main", "../../../etc");
  EXPECT_THAT(ErrorOf(cache), HasSubstr("refs/main leads to none of its snapshots"));
  fs::create_directories(dir_ / "models--org--empty/snapshots");
  EXPECT_THAT(ErrorOf((dir_ / "models--org--empty").string()), HasSubstr("it has no snapshot"));
}

TEST_F(ModelPlaceTest, AnOllamaManifestLeadsToItsBlob) {
  const std::string digits(64, 'a');
  const auto manifest = [&](const std::string& layers) {
    return "{\"schemaVersion\": 2, \"layers\": [" + layers + "]}";
  };
  const auto layer = [](const std::string& kind, const std::string& digest) {
    return "{\"mediaType\": \"application/vnd.ollama.image." + kind + "\", \"digest\": \"" +
           digest + "\"}";
  };
  const std::string model = layer("model", "sha256:" + digits);
  const std::string at = "models/manifests/registry/library/tiny/";
  const std::string blob = Write("models/blobs/sha256-" + digits, "GGUF");
  const std::string latest =
      Write(at + "latest", manifest(layer("template", "sha256:b") + "," + model));
  EXPECT_EQ(Place(latest).path, blob);
  EXPECT_EQ(Place(latest).name, "tiny");
  EXPECT_EQ(Place(Write(at + "1b", manifest(model))).name, "tiny:1b");
  EXPECT_THAT(ErrorOf(Write(at + "a", manifest(model + "," + layer("adapter", "sha256:b")))),
              HasSubstr("which is not applied"));
  EXPECT_THAT(ErrorOf(Write(at + "b", manifest(layer("model", "sha256:../../x")))),
              HasSubstr("has no sha256 digest"));
  EXPECT_THAT(ErrorOf(Write(at + "c", manifest(layer("model", "sha256:" + std::string(64, 'c'))))),
              HasSubstr("which is not in the store's folder blobs"));
}

}  // namespace
}  // namespace continuo::worker
