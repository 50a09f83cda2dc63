"""Datasets: parsers on the formats of the sources, from a server on localhost."""

import bz2
import dataclasses
import http.server
import io
import os
import shutil
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("pooch")

from mcdensity import datasets  # noqa: E402
from mcdensity.datasets import load_dataset, load_split, loaders, simulations, sources  # noqa: E402
from mcdensity.datasets.parsers import in_order  # noqa: E402

DATA = os.environ.get("MCDENSITY_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="MCDENSITY_DATA does not name a data folder")


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{httpd.server_address[1]}"
        httpd.shutdown()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("MCDENSITY_DATA", str(folder))
    monkeypatch.setattr(loaders, "_folders", lambda: [folder])
    return folder


def serve(monkeypatch, server, file, contents, **change):
    """Put files on the server, in the place of those of a source."""
    folder, address = server
    urls = []
    for i, content in enumerate(contents):
        (folder / f"{file}-{i}").write_bytes(content)
        urls.append(f"{address}/{file}-{i}")
    source = dataclasses.replace(
        sources.SOURCES[file], urls=tuple(urls), **{"rows": None, "least_rows": 1} | change
    )
    monkeypatch.setitem(sources.SOURCES, file, source)


def zipped(name, content, inside=""):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("readme.txt", "hello")
        archive.writestr(f"folder/{name}", content)
    if not inside:
        return out.getvalue()
    outer = io.BytesIO()
    with zipfile.ZipFile(outer, "w") as archive:
        archive.writestr(inside, out.getvalue())
    return outer.getvalue()


def excel(rows, suffix):
    out = io.BytesIO()
    frame = pd.DataFrame(rows, columns=[f"Some long name (unit {i})" for i in range(len(rows[0]))])
    if suffix == "xlsx":
        frame.to_excel(out, index=False)
    else:
        xlwt = pytest.importorskip("xlwt")
        book = xlwt.Workbook()
        sheet = book.add_sheet("Sheet1")
        for j, name in enumerate(frame.columns):
            sheet.write(0, j, name)
            for i, row in enumerate(rows):
                sheet.write(i + 1, j, row[j])
        book.save(out)
    return out.getvalue()


def flipped(data):
    """The same archive with damaged bytes in the middle."""
    middle = len(data) // 2
    return data[:middle] + bytes(255 - b for b in data[middle : middle + 8]) + data[middle + 8 :]


BOSTON = """ The Boston house-price data of Harrison, D. and Rubinfeld, D.L.
 Variables in order:
 CRIM     per capita crime rate by town

 0.00632  18.00   2.310  0  0.5380  6.5750  65.20  4.0900   1  296.0  15.30
  396.90   4.98  24.00
 0.02731   0.00   7.070  0  0.4690  6.4210  78.90  4.9671   2  242.0  17.80
  396.90   9.14  21.60
"""
ARFF = "@relation kin8nm\n@attribute theta1 numeric\n@data\n" + "\n".join(
    ",".join(str(round(0.1 * i + j, 2)) for i in range(9)) for j in range(3)
)
WINE = '"fixed acidity";"quality"\n7.4;0.7;0;1.9;0.076;11;34;0.9978;3.51;0.56;9.4;5\n'
TEDDY = "# id mag_r u-g\n#\n" + "1237 18.2 1.9 1.2 0.5 0.3 0.41 0 0 0 0 0\n" * 2
SDSS = "#Table1\ndered_u,dered_g,dered_r,dered_i,dered_z,z\n22.5,21.0,20.0,19.5,19.2,0.55\n"
TAXI = (
    "VendorID,tpep_pickup_datetime,tpep_dropoff_datetime,passenger_count,trip_distance,"
    "pickup_longitude,pickup_latitude,RatecodeID,store_and_fwd_flag,dropoff_longitude,"
    "dropoff_latitude,payment_type,fare_amount\n"
    "1,2016-03-07 06:00:00,2016-03-07 06:15:00,1,2.5,-73.99,40.75,1,N,-73.95,40.78,1,9.0\n"
)
FLIGHTS = (
    '"Year","Month","DayofMonth","DayOfWeek","Reporting_Airline","Origin","Dest","CRSDepTime",'
    '"DepDelay","CRSArrTime","ArrDelay","Distance",\n'
    '2013,1,1,2,"UA","EWR","IAH","0515",2.00,"0819",11.00,1400.00,\n'
    '2013,1,1,2,"AA","JFK","MIA","0540",2.00,"0850",33.00,1089.00,\n'
    '2013,1,1,2,"AA","DFW","MIA","0540",2.00,"0850",33.00,1089.00,\n'
    '2013,1,1,2,"AA","JFK","MIA","0600",,"0910",,1089.00,\n'
)


@pytest.mark.parametrize(
    ("name", "file", "contents", "target"),
    [
        ("BostonHousing", "boston_housing", [BOSTON.encode()], [24.0, 21.6]),
        (
            "Concrete",
            "concrete",
            [
                zipped(
                    "Concrete_Data.xls", excel([[540, 0, 0, 162, 2.5, 1040, 676, 28, 79.99]], "xls")
                )
            ],
            [79.99],
        ),
        (
            "Energy",
            "energy",
            [
                zipped(
                    "ENB2012_data.xlsx",
                    excel([[0.98, 514.5, 294, 110.25, 7, 2, 0, 0, 15.55, 21.33]], "xlsx"),
                )
            ],
            [15.55],
        ),
        (
            "Power",
            "power",
            [zipped("Folds5x2_pp.xlsx", excel([[8.3, 40.8, 1010.8, 90.0, 480.5]] * 2, "xlsx"))],
            [480.5, 480.5],
        ),
        (
            "Protein",
            "protein",
            [zipped("CASP.csv", "RMSD,F1,F2\n17.284" + ",1" * 9 + "\n")],
            [17.284],
        ),
        ("Kin8nm", "kin8nm", [ARFF.encode()], [0.8, 1.8, 2.8]),
        (
            "Naval",
            "naval",
            [zipped("data.txt", "   1.0e+00" * 16 + "   9.5e-01   9.75e-01\n", inside="UCI.zip")],
            [0.95],
        ),
        (
            "Yacht",
            "yacht",
            [zipped("yacht_hydrodynamics.data", "-2.3 1 4 3 3 0.1 0.11\n \n")],
            [0.11],
        ),
        ("WineRed", "wine_red", [zipped("winequality-red.csv", WINE)], [5.0]),
        ("WineWhite", "wine_white", [zipped("winequality-white.csv", WINE)], [5.0]),
        ("Teddy", "teddy", [TEDDY.encode()] * 2, [0.41] * 4),
        ("SDSSBoss", "sdss_boss_photoz", [SDSS.encode()], [0.55]),
        ("NYCTaxiLongitude", "nyc_taxi", [TAXI.encode()], [-73.95]),
        ("NYCTaxiLatitude", "nyc_taxi", [TAXI.encode()], [40.78]),
        ("Flights", "nycflights13", [zipped("On_Time.csv", FLIGHTS)], [11.0, 33.0]),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_download_parse_store(name, file, contents, target, server, cache, monkeypatch):
    serve(monkeypatch, server, file, contents)
    data = load_dataset(name)
    np.testing.assert_allclose(data.y, target)
    assert len(data.X) == len(target)
    assert all(dtype.kind in "if" for dtype in data.X.dtypes)
    stored = pd.read_csv(cache / f"{file}.csv.gz")
    assert list(stored.columns) == list(sources.SOURCES[file].columns)
    # The second time the file is there, and nothing is downloaded.
    monkeypatch.setattr(loaders, "_download", None)
    pd.testing.assert_frame_equal(load_dataset(name).X, data.X)
    assert sorted(p.name for p in cache.iterdir()) == [f"{file}.csv.gz"]


def test_columns_by_name_with_text_and_missing_values(server, cache, monkeypatch):
    text = ("rownames,visits,gender,age,income,illness,reduced,health,private,freepoor,freerepat,"
            "nchronic,lchronic\n1,1,female,0.19,0.55,1,4,1,yes,no,no,no,no\n"
            "2,0,male,,0.45,1,2,1,yes,no,no,no,no\n")  # fmt: skip
    serve(monkeypatch, server, "doctor_visits", [text.encode()])
    data = load_dataset("DoctorVisits")
    assert data.y.tolist() == [1, 0]
    assert data.X["gender"].tolist() == ["female", "male"]
    assert data.X["age"].isna().tolist() == [False, True]
    assert data.description.spacing == 1
    assert (cache / "doctor_visits.csv.gz").is_file()


def test_sdss_colours_and_flight_codes(server, cache, monkeypatch):
    serve(monkeypatch, server, "sdss_boss_photoz", [SDSS.encode()])
    assert load_dataset("SDSSBoss").X.iloc[0].round(6).tolist() == [20.0, 1.5, 1.0, 0.5, 0.3]
    serve(monkeypatch, server, "nycflights13", [zipped("On_Time.csv", FLIGHTS)])
    X = load_dataset("Flights").X
    assert X["sched_dep_min"].tolist() == [315, 340]
    assert X["carrier"].tolist() == [1, 0]
    assert X["dow"].tolist() == [1, 1]


def test_taxi_features(server, cache, monkeypatch):
    rows = TAXI.splitlines()
    bad = rows[1].replace("-73.95,40.78", "0,0")
    # Every 500th trip is kept.
    text = "\n".join([rows[0], *[rows[1]] * 500, bad, *[rows[1]] * 499, rows[1]])
    serve(monkeypatch, server, "nyc_taxi", [text.encode()])
    data = load_dataset("nyc taxi longitude")
    assert data.X.shape == (2, 6)
    # Six in the morning, a quarter of the day, on a Monday.
    np.testing.assert_allclose(data.X["sin_time_of_day"], 1)
    np.testing.assert_allclose(data.X["cos_time_of_day"], 0, atol=1e-12)
    np.testing.assert_allclose(data.X["sin_day_of_week"], np.sin(2 * np.pi * 0.25 / 7))
    # Both ends together: all trips with coordinates, and the passengers.
    X, Y, _ = load_dataset("NYCTaxi")
    assert X["passengers"].tolist() == [1, 1]
    np.testing.assert_array_equal(Y, [[-73.95, 40.78]] * 2)


@pytest.mark.parametrize(
    ("content", "change", "message"),
    [
        (b"not an archive", {}, "is not the data set yacht: File is not a zip file"),
        (
            flipped(zipped("yacht_hydrodynamics.data", "1 1 1 1 1 1 2\n" * 500)),
            {},
            "may be damaged",
        ),
        (zipped("yacht_hydrodynamics.data", "nan 1 1 1 1 1 2\n"), {}, "missing or not finite"),
        (zipped("yacht_hydrodynamics.data", "1 1 1 1 1 1 2\n"), {"least_rows": 9}, "at least 9"),
        (zipped("other.data", "1 2"), {}, "no file 'yacht_hydrodynamics.data'"),
        (zipped("yacht_hydrodynamics.data", "1 2 3\n"), {}, "expected 7 columns"),
        (
            zipped("yacht_hydrodynamics.data", "1 1 1 1 1 1 2\n"),
            {"rows": 308},
            "1 rows instead of 308",
        ),
        (
            zipped("yacht_hydrodynamics.data", "1 1 1 1 1 1 2\n"),
            {"rows": 1},
            "the mean of lcb is 1 instead of -2.38",
        ),
    ],
)
def test_damaged_downloads_store_nothing(content, change, message, server, cache, monkeypatch):
    serve(monkeypatch, server, "yacht", [content], **change)
    with pytest.raises(ValueError, match=message):
        load_dataset("Yacht")
    assert not cache.exists() or not list(cache.iterdir())


def test_offline_says_where_to_put_the_file(cache, monkeypatch):
    source = dataclasses.replace(sources.SOURCES["yacht"], urls=("http://127.0.0.1:9/yacht.zip",))
    monkeypatch.setitem(sources.SOURCES, "yacht", source)
    with pytest.raises(datasets.DatasetUnavailableError, match=r"put the file yacht\.csv\.gz"):
        load_dataset("Yacht")


def test_interrupted_storing_leaves_no_file(server, cache, monkeypatch):
    serve(monkeypatch, server, "teddy", [TEDDY.encode()])

    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        load_dataset("Teddy")
    assert not list(cache.iterdir())


def test_a_damaged_file_is_named(cache):
    cache.mkdir()
    (cache / "yacht.csv.gz").write_bytes(b"garbage")
    with pytest.raises(ValueError, match=r"yacht\.csv\.gz cannot be read .* delete it"):
        load_dataset("Yacht")


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("a file, not a folder")
    monkeypatch.setattr(loaders, "_folders", lambda: [blocked, tmp_path / "cache"])
    path = loaders._write(pd.DataFrame({"a": [1.0]}), "some")
    assert path == tmp_path / "cache" / "some.csv.gz"
    monkeypatch.setattr(loaders, "_folders", lambda: [blocked])
    with pytest.raises(OSError, match="No folder for data can be written"):
        loaders._write(pd.DataFrame({"a": [1.0]}), "some")


def test_splits_are_downloaded_too(server, cache, monkeypatch):
    folder, address = server
    serve(
        monkeypatch, server, "yacht",
        [zipped("yacht_hydrodynamics.data", "1 1 1 1 1 1 2\n" * 6)],
    )  # fmt: skip
    (folder / "splits").write_text("4.000e+00\n1.000e+00\n")
    monkeypatch.setattr(loaders, "split_url", lambda file, split: f"{address}/splits")
    train, test = load_split("Yacht", 3)
    assert train.tolist() == [0, 2, 3, 5]
    assert test.tolist() == [4, 1]
    assert (cache / "split_yacht_3.csv.gz").exists()


def test_names():
    names = datasets.list_datasets()
    assert len(names) == 23
    assert load_dataset("inverse_sinusoid").description.name == "InverseSinusoid"
    with pytest.raises(ValueError, match=r"'bston' is not known; choose from .*BostonHousing"):
        load_dataset("bston")
    with pytest.raises(ValueError, match="Ring has no fixed splits"):
        load_split("Ring", 0)
    with pytest.raises(ValueError, match="split must be from 0 to 4 for Protein"):
        load_split("Protein", 5)


def test_every_description_is_whole():
    for _file, description in sources.DESCRIPTIONS.values():
        assert description.source
        assert description.citation
        assert description.licence
        assert description.defects
        assert "Cite: " in str(description)
    assert "Black" in load_description("BostonHousing").defects


def load_description(name):
    return sources.DESCRIPTIONS[name][1]


@needs_data
@pytest.mark.parametrize("file", sorted(f for f, s in sources.SOURCES.items() if f != "teddy"))
def test_tidy_files_pass_the_checks_of_their_sources(file):
    path = Path(DATA) / f"{file}.csv.gz"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    table = pd.read_csv(path)
    assert list(table.columns) == list(sources.SOURCES[file].columns)
    loaders._verify(table, sources.SOURCES[file])


@needs_data
def test_damaged_tables_fail_the_checks():
    source = sources.SOURCES["boston_housing"]
    table = pd.read_csv(Path(DATA) / "boston_housing.csv.gz")
    assert in_order(table, "boston_housing")
    shuffled = table.sample(frac=1, random_state=0)
    loaders._verify(shuffled, source)  # the same rows: only the splits must not use them
    assert not in_order(shuffled, "boston_housing")
    turned = table.assign(LSTAT=table["LSTAT"].to_numpy()[::-1])
    with pytest.raises(ValueError, match="do not belong to the rows"):
        loaders._verify(turned, source)
    with pytest.raises(ValueError, match="the mean of CRIM"):
        loaders._verify(table.assign(CRIM=0.0), source)


@needs_data
def test_rows_in_another_order_have_no_splits(cache, monkeypatch):
    cache.mkdir()
    table = pd.read_csv(Path(DATA) / "yacht.csv.gz")
    table.iloc[::-1].to_csv(cache / "yacht.csv.gz", index=False)
    rows = pd.DataFrame({"test_index": [3, 4]})
    rows.to_csv(cache / "split_yacht_0.csv.gz", index=False)
    with pytest.raises(ValueError, match="another order than the fixed splits"):
        load_split("Yacht", 0)
    pd.DataFrame({"test_index": [3, 999]}).to_csv(cache / "split_yacht_0.csv.gz", index=False)
    with pytest.raises(ValueError, match="does not name rows"):
        load_split("Yacht", 0)


@needs_data
def test_the_sheet_in_the_right_order_is_taken(server, cache, monkeypatch):
    table = pd.read_csv(Path(DATA) / "yacht.csv.gz")
    out = io.BytesIO()
    with pd.ExcelWriter(out) as book:
        table.iloc[::-1].to_excel(book, index=False, sheet_name="first")
        table.to_excel(book, index=False, sheet_name="second")
    content = [zipped("yacht_hydrodynamics.data", out.getvalue())]
    serve(monkeypatch, server, "yacht", content, rows=len(table), parser="excel")
    np.testing.assert_array_equal(load_dataset("Yacht").y, table.iloc[:, -1])


@needs_data
def test_taxi_rows_that_are_kept():
    X, y, _ = load_dataset("NYCTaxiLatitude")
    assert X.shape == (23396, 6)
    assert 40.62 <= y.min() < y.max() <= 40.86
    train, test = load_split("BostonHousing", 0)
    assert len(train) == 455
    assert len(test) == 51


def test_observations_of_simulators_are_downloaded(server, cache, monkeypatch):
    folder, address = server
    monkeypatch.setattr(simulations, "URL", address)
    monkeypatch.setattr(simulations, "_folders", lambda: [cache])
    rng = np.random.default_rng(0)
    for i in range(1, 6):
        place = folder / "two_moons" / "files" / f"num_observation_{i}"
        place.mkdir(parents=True)
        (place / "observation.csv").write_text(f"data_1,data_2\n{i},0.5\n")
        draws = "\n".join(f"{a},{b}" for a, b in rng.normal(size=(20, 2)))
        exact = bz2.compress(f"parameter_1,parameter_2\n{draws}\n".encode())
        (place / "reference_posterior_samples.csv.bz2").write_bytes(exact)
    observed, reference = simulations.load_simulation("two_moons")
    assert observed[:, 0].tolist() == [1, 2, 3, 4, 5]
    assert reference.shape == (5, 20, 2)
    shutil.rmtree(folder / "two_moons")  # now from the cache
    np.testing.assert_array_equal(simulations.load_simulation("two_moons")[1], reference)
    with pytest.raises(loaders.DatasetUnavailableError, match="sbibm slcp is not in"):
        simulations.load_simulation("slcp")
    with pytest.raises(ValueError, match="'moons' is no task"):
        simulations.load_simulation("moons")
    (cache / "sbibm" / "two_moons.npz").write_bytes(b"no table")
    with pytest.raises(ValueError, match="cannot be read"):
        simulations.load_simulation("two_moons")
