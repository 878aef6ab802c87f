# lab.compare_*: run control, its parts in C++ and the program from outside.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
file(GLOB compare_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/compare_*_test.cc)
add_executable(compare_test ${compare_sources})
target_link_libraries(compare_test PRIVATE locus_study locus_build
  fmt::fmt GTest::gtest_main)
gtest_discover_tests(compare_test TEST_PREFIX lab. PROPERTIES LABELS lab
  TIMEOUT 120 DISCOVERY_TIMEOUT 60)

foreach(suite IN ITEMS Study Resume Signals Damage Usage)
  add_test(NAME lab.compare_${suite} COMMAND Python3::Interpreter
    ${CMAKE_CURRENT_LIST_DIR}/compare_test.py $<TARGET_FILE:locus_compare> ${suite})
  set_tests_properties(lab.compare_${suite} PROPERTIES LABELS lab TIMEOUT 600)
endforeach()

# The report of a real results.json, and of one that is damaged.
set(lab_results ${CMAKE_BINARY_DIR}/lab_results)
add_test(NAME lab.compare_small_study COMMAND locus_compare --fresh
  --out ${lab_results} --layers 1 --model-dim 16 --heads 2 --train-length 8
  --lengths 8,16 --score-tokens 64 --steps 4 --batch 2 --seeds 2
  --encodings learned,rope --tasks copy,text
  --corpus ${PROJECT_SOURCE_DIR}/docs/theory.md
  --extend none,yarn --fine-tune-steps 2 --factor 2 --cost-lengths 16)
set_tests_properties(lab.compare_small_study PROPERTIES LABELS lab TIMEOUT 300
  FIXTURES_SETUP lab_results)
add_executable(report_damage_test ${CMAKE_CURRENT_LIST_DIR}/report_damage.cc)
target_link_libraries(report_damage_test PRIVATE locus_study locus_build
  fmt::fmt GTest::gtest)
add_test(NAME lab.report_damage
  COMMAND report_damage_test ${lab_results}/results.json)
set_tests_properties(lab.report_damage PROPERTIES LABELS lab TIMEOUT 300
  FIXTURES_REQUIRED lab_results)

# Variants, and encodings that Python wrote.
if(LOCUS_PYTHON)
  add_test(NAME lab.own COMMAND ${Python_EXECUTABLE} -B
    ${CMAKE_CURRENT_LIST_DIR}/own_test.py $<TARGET_FILE:locus_compare>)
  set_tests_properties(lab.own PROPERTIES LABELS lab TIMEOUT 600
    ENVIRONMENT "PYTHONPATH=${PROJECT_BINARY_DIR}/python")
endif()

if(LOCUS_RING)
  include(${CMAKE_CURRENT_LIST_DIR}/ranks.cmake)
endif()
