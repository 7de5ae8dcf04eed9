// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/workers/model_catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace continuo::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

std::shared_ptr<const WorkerLoad> Load(const std::string& model, WorkerState state,
                                       const std::string& fingerprint) {
  return std::make_shared<WorkerLoad>(
      WorkerLoad{.model = model, .fingerprint = fingerprint, .state = state});
}

v1::Model Named(const std::string& name) {
  v1::Model model;
  model.set_name(name);
  return model;
}

TEST(ModelCatalogTest, AModelHasTheServingWorkersAndTheirFingerprints) {
  ModelCatalog catalog;
  catalog.AddName("b");
  catalog.AddName("a");
  catalog.SetDescription(Named("a"));
  for (const char* name : {"a", "b"}) catalog.List(name);
  v1::Model description;
  description.set_name("b");
  description.set_architecture("X");
  description.add_fingerprints("old");
  catalog.SetDescription(description);
  EXPECT_THAT(catalog.Names(), ElementsAre("a", "b"));
  const std::vector<v1::Model> models = catalog.Models(
      {.workers = {Load("b", WorkerState::kServing, "2"), Load("b", WorkerState::kServing, "1"),
                   Load("b", WorkerState::kServing, "2"), Load("b", WorkerState::kServing, ""),
                   Load("b", WorkerState::kDraining, "3"), Load("a", WorkerState::kLost, "4")}});
  ASSERT_EQ(models.size(), 2);
  EXPECT_EQ(models[0].name(), "a");
  EXPECT_EQ(models[0].num_workers(), 0);
  EXPECT_THAT(models[0].fingerprints(), ElementsAre());
  EXPECT_EQ(models[1].name(), "b");
  EXPECT_EQ(models[1].architecture(), "X");
  EXPECT_EQ(models[1].num_workers(), 4);
  EXPECT_THAT(models[1].fingerprints(), ElementsAre("1", "2"));
}

TEST(ModelCatalogTest, AModelIsListedOnceItsWorkerHasAnswered) {
  ModelCatalog catalog;
  catalog.AddName("a");
  catalog.AddName("silent");
  const LoadSnapshot serving = {.workers = {Load("a", WorkerState::kServing, "1"),
                                            Load("silent", WorkerState::kServing, "1")}};
  EXPECT_THAT(catalog.Names(), ElementsAre("a", "silent"));
  EXPECT_THAT(catalog.Models(serving), ElementsAre());
  catalog.SetDescription(Named("a"));
  catalog.List("a");
  catalog.List("silent");  // It has no description.
  const std::vector<v1::Model> models = catalog.Models(serving);
  ASSERT_EQ(models.size(), 2);
  EXPECT_FALSE(models[0].undescribed());
  EXPECT_EQ(models[1].name(), "silent");
  EXPECT_TRUE(models[1].undescribed());
  EXPECT_EQ(models[1].num_workers(), 1);
}

TEST(ModelCatalogTest, ADeclaredModelIsListedByNameBeforeItIsDescribed) {
  ModelCatalog catalog(DeclaredModels{.models = {"b", "a"}});
  EXPECT_THAT(catalog.Names(), ElementsAre("a", "b"));
  std::vector<v1::Model> models = catalog.Models({});
  ASSERT_EQ(models.size(), 2);
  EXPECT_EQ(models[0].name(), "a");
  EXPECT_TRUE(models[0].undescribed());
  EXPECT_EQ(models[0].num_workers(), 0);
  v1::Model described = Named("a");
  described.set_architecture("X");
  catalog.AddName("a");
  catalog.SetDescription(described);
  models = catalog.Models({.workers = {Load("a", WorkerState::kServing, "1")}});
  ASSERT_EQ(models.size(), 2);
  EXPECT_EQ(models[0].architecture(), "X");
  EXPECT_FALSE(models[0].undescribed());
  EXPECT_EQ(models[0].num_workers(), 1);
  EXPECT_TRUE(models[1].undescribed());
}

std::shared_ptr<const WorkerLoad> AdapterLoad(const std::string& model, const std::string& parent) {
  return std::make_shared<WorkerLoad>(WorkerLoad{.model = model, .parent = parent});
}

TEST(ModelCatalogTest, DeclaredAdaptersAreKnownWithTheirParents) {
  ModelCatalog catalog(DeclaredModels{.models = {"m"}, .adapters = {{"poet", "m"}}});
  EXPECT_THAT(catalog.Names(), ElementsAre("m", "poet"));
  EXPECT_THAT(catalog.Adapters(), ElementsAre(Pair("poet", "m")));
  const std::vector<v1::Model> models = catalog.Models({});
  ASSERT_EQ(models.size(), 2);
  EXPECT_TRUE(models[1].undescribed());
  EXPECT_EQ(models[1].parent(), "m");
}

TEST(ModelCatalogTest, AnAdapterThatNobodyServesAnyMoreIsForgotten) {
  ModelCatalog catalog(DeclaredModels{.models = {"m"}, .adapters = {{"clerk", "m"}}});
  catalog.AddAdapter("poet", "m");
  catalog.SetDescription(Named("poet"));
  catalog.List("poet");
  const std::vector<std::shared_ptr<const WorkerLoad>> one = {AdapterLoad("poet", "m")};
  catalog.Withdraw("poet");
  catalog.SettleAdapters(one);
  EXPECT_THAT(catalog.Names(), ElementsAre("clerk", "m", "poet")) << "another worker has it";
  catalog.SettleAdapters({});
  EXPECT_THAT(catalog.Names(), ElementsAre("clerk", "m", "poet")) << "it was lost";
  catalog.Withdraw("poet");
  catalog.Withdraw("clerk");
  catalog.SettleAdapters({});
  EXPECT_FALSE(catalog.Knows("poet"));
  EXPECT_THAT(catalog.Names(), ElementsAre("clerk", "m")) << "this one is declared";
  EXPECT_THAT(catalog.Adapters(), ElementsAre(Pair("clerk", "m")));
  EXPECT_EQ(catalog.Models({}).size(), 2u);
  // It comes back.
  catalog.AddAdapter("poet", "m");
  catalog.SettleAdapters(one);
  EXPECT_TRUE(catalog.Knows("poet"));
}

TEST(ModelCatalogTest, WhatWorkersServeNowSaysWhichNamesAreAdapters) {
  ModelCatalog catalog;
  catalog.AddName("a");
  catalog.AddAdapter("poet", "a");
  catalog.AddAdapter("a", "a");
  catalog.SettleAdapters({Load("a", WorkerState::kServing, "1"), AdapterLoad("poet", "a")});
  EXPECT_THAT(catalog.Adapters(), ElementsAre(Pair("poet", "a"))) << "no model adapts itself";
  // It was merged, and is served as a model of its own beside the workers before.
  catalog.AddName("poet");
  catalog.SettleAdapters({AdapterLoad("poet", "a"), Load("poet", WorkerState::kServing, "2")});
  EXPECT_THAT(catalog.Adapters(), ElementsAre());
  EXPECT_THAT(catalog.Names(), ElementsAre("a", "poet"));
  catalog.SettleAdapters({AdapterLoad("poet", "a")});
  EXPECT_THAT(catalog.Adapters(), ElementsAre(Pair("poet", "a")));
  catalog.SettleAdapters({});
  EXPECT_THAT(catalog.Adapters(), ElementsAre(Pair("poet", "a"))) << "as long as nobody knows more";
  catalog.SettleAdapters({AdapterLoad("poet", "b"), AdapterLoad("poet", "a")});
  EXPECT_THAT(catalog.Adapters(), ElementsAre(Pair("poet", "b"))) << "the first of them";
}

}  // namespace
}  // namespace continuo::gateway
