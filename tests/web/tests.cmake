# The report page in a real browser. Pages are made from made-up results by the
# code that makes real ones.
find_program(LOCUS_CHROMIUM NAMES chromium chromium-browser google-chrome)
if(NOT LOCUS_CHROMIUM)
  message(FATAL_ERROR "the tests of web/ need Chromium: run tools/setup.sh")
endif()
set(web_tests ${CMAKE_CURRENT_LIST_DIR})
set(web_modules ${PROJECT_BINARY_DIR}/web/node_modules)
set(web_pages ${PROJECT_BINARY_DIR}/web/pages)

add_test(NAME web.make_pages
  COMMAND ${web_tests}/make_pages.sh ${LOCUS_NODE} $<TARGET_FILE:locus_compare> ${web_pages})
set_tests_properties(web.make_pages PROPERTIES
  LABELS web TIMEOUT 300 FIXTURES_SETUP web_pages)

foreach(name offline charts save table access layout live hostile)
  add_test(NAME web.${name}
    COMMAND ${LOCUS_NODE} --test ${web_tests}/${name}.test.mjs)
  set_tests_properties(web.${name} PROPERTIES
    LABELS web TIMEOUT 300 FIXTURES_REQUIRED web_pages
    ENVIRONMENT "LOCUS_CHROMIUM=${LOCUS_CHROMIUM};LOCUS_WEB_MODULES=${web_modules};LOCUS_WEB_PAGES=${web_pages}")
endforeach()

add_test(NAME web.types
  COMMAND ${LOCUS_NODE} ${web_modules}/typescript/bin/tsc --noEmit
    --project ${PROJECT_SOURCE_DIR}/web --baseUrl ${web_modules})
add_test(NAME web.lock
  COMMAND ${LOCUS_NODE} --test ${web_tests}/lock.test.mjs)
set_tests_properties(web.types web.lock PROPERTIES LABELS web TIMEOUT 120)

# The explorer: built by its own script, compared with the tool.
set(web_explorer ${PROJECT_BINARY_DIR}/web/explorer)
add_test(NAME web.make_explorer
  COMMAND ${PROJECT_SOURCE_DIR}/web/explorer.sh ${web_explorer} ${web_explorer})
set_tests_properties(web.make_explorer PROPERTIES
  LABELS web TIMEOUT 1800 FIXTURES_SETUP web_explorer)
foreach(name explorer_values explorer_use)
  add_test(NAME web.${name}
    COMMAND ${LOCUS_NODE} --test ${web_tests}/${name}.test.mjs)
  set_tests_properties(web.${name} PROPERTIES
    LABELS web TIMEOUT 600 FIXTURES_REQUIRED web_explorer
    ENVIRONMENT "LOCUS_CHROMIUM=${LOCUS_CHROMIUM};LOCUS_WEB_MODULES=${web_explorer}/node_modules;LOCUS_EXPLORER=${web_explorer}/explorer.html;LOCUS_TOOL=$<TARGET_FILE:locus_cli>")
endforeach()
set_tests_properties(web.explorer_use PROPERTIES COST 80)
