# Run control: the program that `locus compare` becomes, beside locus.
find_package(CLI11 REQUIRED)

add_library(locus_study STATIC
  compare.cc
  compare_job.cc
  compare_measure.cc
  compare_open.cc
  compare_pool.cc
  compare_ranks.cc
  compare_recover.cc
  compare_stop.cc
  compare_study.cc
  compare_train.cc
  compare_worker.cc
  config.cc
  config_preset.cc
  config_resolve.cc
  export.cc
  launch.cc
  plan.cc
  progress.cc
  report.cc
  report_data.cc
  report_table.cc
  report_tables.cc
  report_text.cc
  results.cc
  results_check.cc
  store.cc
  # Charts are drawn as `locus show` draws.
  ${PROJECT_SOURCE_DIR}/cli/gnuplot.cc
  ${PROJECT_SOURCE_DIR}/cli/heat_map.cc
  ${PROJECT_SOURCE_DIR}/cli/interrupts.cc
  ${PROJECT_SOURCE_DIR}/cli/plot_gnuplot.cc)
target_link_libraries(locus_study
  PUBLIC locus_lab nlohmann_json::nlohmann_json
  PRIVATE locus_build locus_report_template fmt::fmt)
# Nothing in here is hot, and JSON compiles three times as fast like this.
target_compile_options(locus_study PRIVATE -O1)
locus_precompile(locus_study <fmt/format.h> <nlohmann/json.hpp> <torch/types.h>)

# With the ring, ranks of MPI share a study; without it, they are refused.
add_executable(locus_compare main.cc ${PROJECT_SOURCE_DIR}/cli/complain.cc)
if(LOCUS_RING)
  add_library(locus_lab_mpi STATIC ranks_mpi.cc)
  target_link_libraries(locus_lab_mpi PUBLIC locus_ring locus_lab
    PRIVATE locus_build)
  target_sources(locus_compare PRIVATE launch_mpi.cc
    ${PROJECT_SOURCE_DIR}/ring/cli/session.cc)
  target_link_libraries(locus_compare PRIVATE locus_lab_mpi)
else()
  target_sources(locus_compare PRIVATE launch_none.cc)
endif()
set_target_properties(locus_compare PROPERTIES
  OUTPUT_NAME locus-compare
  RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/cli)
target_link_libraries(locus_compare PRIVATE locus_study locus_build
  fmt::fmt CLI11::CLI11)
if(LOCUS_INSTALL)
  install(TARGETS locus_compare RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
