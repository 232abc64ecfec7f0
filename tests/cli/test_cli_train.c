/* test_cli_train.c -- `polar train deit`, `polar run` and `polar plan` on pictures, from outside: argv[1] is
 * the program. */
#include "cli_fixture.h"

#define SPEC SOURCE_DIR "/specs/demo/deit_tiny.yaml"
#define SMALL                                                                                   \
    " --set model.image=16 --set model.patch=8 --set model.width=12 --set model.depth=1 --set " \
    "train.batch=4 --set train.epochs=2 --set data.classes=0 --device cpu:threads=1"
#define TRAIN "$P train deit" SMALL

static void test_missing(void)
{
    refused("$P train deit --store $D/x.db", 2, "--data DIR");
    refused("$P train deit --data $D/nothing --set data.classes=0 --store $D/x.db", 2, "no folder");
    refused("$P train deit --data '' --store $D/x.db", 2, "--data is empty");
    refused("$P train so3 --data $D --store $D/x.db", 2, "no key 'data.set' in testbed so3");
    refused("$P run " SPEC " --data $D --store $D/x.db", 2, "made on the fly");
    refused("$P run " SPEC " --data synth:classes=0 --store $D/x.db", 2, "classes wants a whole number");
    refused("$P train deit --data synth: --set data.set=x --store $D/x.db", 2, "both say which set it is");
    sh("mkdir -p $D/empty/val/cat");
    refused(TRAIN " --data $D/empty --store $D/x.db", 2, "holds no train/");
    sh("mkdir -p $D/empty/train/cat");
    refused(TRAIN " --data $D/empty --store $D/x.db", 2, "holds no JPEG or PNG");
    sh("mkdir -p $D/empty/val/dog; : > $D/empty/train/cat/1.jpg; : > $D/empty/val/cat/1.jpg; : > "
       "$D/empty/val/dog/1.jpg");
    refused(TRAIN " --data $D/empty --store $D/x.db", 2, "class 'dog' is in val/ but not in train/");
}

/* A folder of JPEGs, a pack of it, one picture broken. */
static void test_pictures(void)
{
    accepted("$P data synth $D/pictures --classes 2 --train 6 --val 3 --size 32", "");
    accepted(TRAIN " --data $D/pictures --store $D/a.db --save $D/a.st", "train_images  12");
    test_true("  live progress",
              strstr(last.err, "epoch    1  train ") && strstr(last.err, "top-1 % ") &&
                  strstr(last.err, " images/s"),
              "%s", first_line(last.err));
    accepted(TRAIN " --data $D/pictures/ --store $D/a.db", "test_images   6");
    test_true("  a run that is done is not made again", strstr(last.err, "nothing to do") != NULL, "%s",
              first_line(last.err));
    accepted("mv $D/pictures $D/moved && " TRAIN
             " --data $D/moved --set data.set=pictures --set data.workers=3 --store $D/a.db",
             "top1");
    test_true("  ... wherever its pictures are", strstr(last.err, "nothing to do") != NULL, "%s",
              first_line(last.err));
    accepted(TRAIN " --data $D/moved --set data.set=pictures --set data.workers=3 --store $D/b.db --save "
                   "$D/b.st && cmp $D/a.st $D/b.st",
             "top1");
    accepted("$P data pack $D/moved $D/set.pack --size 24", "");
    accepted(TRAIN " --data $D/set.pack --store $D/a.db", "train_images  12");
    sh("for i in 0 1 2 3 4 5; do head -c 300 $D/moved/train/texture_001/0000$i.jpg > $D/half; mv $D/half "
       "$D/moved/train/texture_001/0000$i.jpg; done");
    sh(TRAIN " --data $D/moved --set data.set=broken --store $D/a.db");
    test_true("a broken picture",
              last.code == 2 && strstr(last.err, "train/texture_001/0000") && strstr(last.err, "--skip-bad"),
              "exit %d: %s", last.code, last.err);
    accepted(TRAIN " --data $D/moved --set data.set=broken --store $D/a.db --skip-bad", "skipped       6");
}

/* Pictures of one name are the same for every run of a store, finished or to be gone on with; their place is
 * free. */
static void test_other_pictures(void)
{
    accepted("mkdir $D/one $D/two && $P data synth $D/one/set --classes 2 --train 6 --val 3 --size 32 && $P "
             "data synth $D/two/set --classes 2 --train 7 --val 3 --size 32",
             "");
    accepted(TRAIN " --data $D/one/set --store $D/o.db", "train_images  12");
    test_true("  what it was trained on is told", strstr(last.err, "trained on set, all classes, ") != NULL,
              "%s", last.err);
    refused(TRAIN " --rule muon --data $D/two/set --store $D/o.db", 2,
            "trained on other data of the same name");
    refused(TRAIN " --data $D/two/set --store $D/o.db --save $D/o.st", 2,
            "trained on other data of the same name");
    accepted(TRAIN " --rule muon --data $D/two/set --set data.set=two --store $D/o.db", "train_images  14");
    accepted("mv $D/one $D/three && " TRAIN " --rule muon --data $D/three/set --store $D/o.db",
             "train_images  12");
    accepted("$P data pack $D/three/set $D/other.pack --size 16", "");
    refused(TRAIN " --rule adamw --data $D/other.pack --set data.set=set --store $D/o.db", 2,
            "trained on other data of the same name");
    accepted("for p in 0 1 2 3 4 5 6 7 8 9 a b c d e f; do $P audit train_deit --store $D/o.db --metric top1 "
             "--run $p; done 2>/dev/null | grep ^data",
             "data   set, all classes, ");
}

static void test_plans(void)
{
    accepted("$P plan " SPEC, "polaradamw");
    test_true("  no run of deit stops early", !strstr(last.out, "early") && !strstr(last.out, "at most"),
              "%s", last.out);
    accepted("$P plan " SOURCE_DIR "/specs/demo/so3_tiny.yaml", "if none stops early");
    accepted("$P plan " SPEC " --data synth:classes=2,train=50,test=8,size=24 --format csv", "adamw");
    accepted("$P plan " SOURCE_DIR "/specs/paper/deit_minimal_100ep.yaml",
             "without --data every class is taken to have 1300 training");
    accepted("$P plan --keys deit", "data.path");
    accepted("$P run " SPEC " --set train.epochs=1 --store $D/r.db --jobs 2", "adamw");
    accepted("$P run " SOURCE_DIR
             "/specs/demo/deit_small.yaml --set arms=adamw --set seeds=0 --set train.epochs=1 --set "
             "model.depth=1 --data synth:classes=2,train=16,test=4,size=32 --store $D/r.db",
             "adamw");
    test_true("  an l10 of one epoch is none", !strstr(last.out, "nan") && !strstr(last.out, "inf"), "%s",
              last.out);
    accepted("$P audit " SOURCE_DIR
             "/specs/demo/deit_small.yaml --set arms=adamw --set seeds=0 --set train.epochs=1 --set "
             "model.depth=1 --data synth:classes=2,train=16,test=4,size=32 --metric top1"
             " --store $D/r.db --format json",
             "\"n\": 1");
}

int main(int argc, char **argv)
{
    if (!cli_begin(argc, argv)) return 1;
    test_missing();
    test_pictures();
    test_other_pictures();
    test_plans();
    return cli_end();
}
